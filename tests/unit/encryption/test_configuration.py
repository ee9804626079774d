"""Valid and invalid EncryptionConfigurations."""

from __future__ import annotations

import pytest

from restow.apimachinery.names import GroupResource
from restow.encryption.configuration import (
    FILE_BYTES_MAX,
    PLAIN,
    ConfigurationRefused,
    IdentityProvider,
    KmsProvider,
    LocalProvider,
    read_configuration,
)
from tests.unit.encryption.keys_for_tests import IDENTITY, document, kms, local

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
KEY = "{name: a, secret: AAAAAAAAAAAAAAAAAAAAAA==}"


def test_yaml_as_people_write_it() -> None:
    """A YAML file gives the providers in order, with decoded secrets."""
    found = read_configuration(
        f"""{HEAD}
resources:
- resources:
  - secrets
  providers:
  - aescbc:
      keys:
      - name: new
        secret: MDEyMzQ1Njc4OWFiY2RlZg==
      - name: old
        secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=
  - kms:
      apiVersion: v2
      name: vault
      endpoint: unix:///run/kms.sock
  - identity: {{}}
""".encode()
    )
    first, plugin, last = found.providers_of(GroupResource("", "secrets"))
    assert isinstance(first, LocalProvider)
    assert [(key.name, key.secret) for key in first.keys] == [
        ("new", b"0123456789abcdef"),
        ("old", b"0123456789abcdef" * 2),
    ]
    assert plugin == KmsProvider("vault", "/run/kms.sock", 3.0)
    assert found.plugins() == (plugin,)
    assert last == IdentityProvider()
    assert found.digest.startswith("sha256:")
    assert "0123456789abcdef" not in repr(found)


@pytest.mark.parametrize(
    ("resource", "key"),
    [
        ("secrets", "a"),
        ("configmaps", "b"),
        ("deployments.apps", "c"),
        ("statefulsets.apps", "d"),
        ("jobs.batch", "e"),
        ("widgets.example.com", "e"),
        ("leases.coordination.k8s.io", None),
        ("storageversions.internal.apiserver.k8s.io", None),
        ("storageversionmigrations.storagemigration.k8s.io", None),
        ("customresourcedefinitions.apiextensions.k8s.io", None),
    ],
)
def test_which_rule_counts(resource: str, key: str | None) -> None:
    """A name takes precedence over its group, a group over all; wildcards exclude pinned kinds."""
    found = read_configuration(
        document(
            ("secrets", [local("aesgcm", "a")]),
            ("*.", [local("aesgcm", "b")]),
            ("deployments.apps", [local("aesgcm", "c")]),
            ("*.apps", [local("aesgcm", "d")]),
            ("*.*", [local("aesgcm", "e")]),
        )
    )
    providers = found.providers_of(GroupResource.parse(resource))
    if key is None:
        assert providers == PLAIN
    else:
        (provider,) = providers
        assert isinstance(provider, LocalProvider)
        assert provider.keys[0].name == key


def test_a_resource_in_two_blocks_has_the_providers_of_both() -> None:
    """Those of the first block come first and encrypt; those of the second can decrypt as well."""
    found = read_configuration(
        document(("secrets", [local("aesgcm", "a")]), ("secrets", [local("aescbc", "b"), IDENTITY]))
    )
    names = [
        getattr(provider, "cipher", "identity")
        for provider in found.providers_of(GroupResource("", "secrets"))
    ]
    assert names == ["aesgcm", "aescbc", "identity"]


def test_abstract_socket() -> None:
    """An abstract socket is named with an @, as in kube-apiserver."""
    found = read_configuration(document(("secrets", [kms("unix:///@kms"), IDENTITY])))
    assert found.plugins()[0].socket == "@kms"


RESOURCES = "resources[0].resources"
PROVIDERS = "resources[0].providers"
MASKED = "using overlapping resources such as 'secrets' and '*.' in the same resource list"

BAD_RESOURCES = {
    "Secrets": f'{RESOURCES}[0]: Invalid value: "Secrets": resource name should not contain',
    "*": "use '*.' to encrypt all the resources from core API group",
    "serviceipallocations": "resources which do not have REST API/s cannot be encrypted",
    "events.events.k8s.io": "Use 'events' instead in the config file",
    "*.events.k8s.io": "Use 'events' instead in the config file",
    "ingresses.extensions": "'extensions' group has been removed",
    "secrets.*": "encrypting the same resource across groups is not supported",
    "secrets secrets": f'{RESOURCES}: Invalid value: "secrets, secrets": the same resource cannot',
    "secrets *.": MASKED,
    "*.* *.apps": MASKED,
    "deployments.apps *.apps": MASKED,
    "leases.coordination.k8s.io": f'{RESOURCES}[0]: Invalid value: "leases.coordination.k8s.io":'
    " it is never encrypted: servers use it to agree on versions and keys",
    "customresourcedefinitions.apiextensions.k8s.io": "it is never encrypted",
    "storagestates.migration.k8s.io": "it is never encrypted",
    "a/b": "it is not the name of a resource",
    "": f"{RESOURCES}: Required value: at least one {RESOURCES} is required",
}


@pytest.mark.parametrize(("names", "problem"), BAD_RESOURCES.items())
def test_bad_resources(names: str, problem: str) -> None:
    """Invalid resources are rejected, with kube-apiserver's wording if there is one."""
    with pytest.raises(ConfigurationRefused) as caught:
        read_configuration(document((names, [IDENTITY])))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("*.", "secrets", 'resource "secrets" is masked by earlier rule "*."'),
        ("*.*", "*.", 'resource "*." is masked by earlier rule "*.*"'),
        ("*.apps", "deployments.apps", 'resource "deployments.apps" is masked by earlier rule'),
        ("*.apps", "*.apps", 'resource "*.apps" is masked by earlier rule "*.apps"'),
    ],
)
def test_masked_by_an_earlier_block(first: str, second: str, text: str) -> None:
    """A rule that would never apply is rejected."""
    with pytest.raises(ConfigurationRefused) as caught:
        read_configuration(document((first, [IDENTITY]), (second, [IDENTITY])))
    assert f"resources[1].resources[0]: {text}" in str(caught.value)


BAD_PROVIDERS = {
    "[]": f"{PROVIDERS}: Required value: at least one {PROVIDERS} is required",
    "[{}]": f"{PROVIDERS}[0]: provider does not contain any of the expected providers",
    "[{aesgcm: }]": f"{PROVIDERS}[0]: provider does not contain any of the expected providers",
    "[{rot13: {}}]": f"{PROVIDERS}[0].rot13: unknown field",
    "[{identity: {}, aesgcm: {keys: []}}]": "more than one provider specified in a single element",
    "[{identity: {a: 1}}]": f"{PROVIDERS}[0].identity.(not shown: it may be a"
    " secret): unknown field",
    "[{aesgcm: {keys: []}}]": f"{PROVIDERS}[0].aesgcm.keys: Required value: at least one keys",
    "[{aesgcm: {keys: {}}}]": f"{PROVIDERS}[0].aesgcm.keys: must be a list",
    "[{aescbc: []}]": f"{PROVIDERS}[0].aescbc: must be an object",
    "[{aesgcm: {keys: [{secret: AAAA}]}}]": "keys[0].name: Required value: name is a mandatory",
    "[{aesgcm: {keys: [{name: a}]}}]": "keys[0].secret: Required value: secret is a mandatory",
    "[{aesgcm: {keys: [{name: a, secret: '!!'}]}}]": "secrets must be base64 encoded",
    "[{aesgcm: {keys: [{name: a, secret: 12345678}]}}]": "keys[0].secret: must be a string",
    "[{aesgcm: {keys: [{name: a, secret: AAAA}]}}]": 'secret: Invalid value: "REDACTED": secret is'
    " not of the expected length, got 3, expected one of [16 24 32]",
    f"[{{secretbox: {{keys: [{KEY}]}}}}]": "got 16, expected one of [32]",
    f"[{{aesgcm: {{keys: [{KEY}, {KEY}]}}}}]": 'keys[1].name: Invalid value: "a": duplicate key',
    "[{aesgcm: {keys: [{name: 'a:b', secret: AAAA}]}}]": "must not contain ':'",
    "[{kms: {name: a, endpoint: 'unix:///a'}}]": f"{PROVIDERS}[0].kms.apiVersion: Invalid value:"
    ' "v1": KMS v1 is not supported',
    "[{kms: {}}, {identity: {}}]": f'{PROVIDERS}[0].kms.apiVersion: Invalid value: "v1"',
    "[{kms: []}]": f"{PROVIDERS}[0].kms: must be an object",
    "[{kms: {apiVersion: v3, name: a, endpoint: 'unix:///a'}}]": "only v2 is supported",
    "[{kms: {apiVersion: v2, endpoint: 'unix:///a'}}]": "name is a mandatory field for a provider",
    "[{kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'}}]": "KMS provider name a:b",
    "[{kms: {apiVersion: v2, name: a}}]": "endpoint is a mandatory field for a kms",
    "[{kms: {apiVersion: v2, name: a, endpoint: 'tcp://h:1'}}]": 'unsupported scheme "tcp"',
    "[{kms: {apiVersion: v2, name: a, endpoint: 'unix://h'}}]": "invalid endpoint for kms provider",
    "[{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: 0s}}]": "timeout should be",
    "[{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: x}}]": "invalid duration",
    "[{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', cachesize: 5}}]": "cachesize is not"
    " supported in v2",
    "[{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}},"
    " {kms: {apiVersion: v2, name: a, endpoint: 'unix:///b'}}]": "duplicate KMS provider name a",
}


@pytest.mark.parametrize(("providers", "problem"), BAD_PROVIDERS.items())
def test_bad_providers(providers: str, problem: str) -> None:
    """Each problem is reported with its path in the file, and without secrets."""
    text = f"{HEAD}resources: [{{resources: [secrets], providers: {providers}}}]"
    with pytest.raises(ConfigurationRefused) as caught:
        read_configuration(text.encode())
    assert problem in str(caught.value)
    assert "12345678" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty"),
        ("a: [", "YAML"),
        ("[]", "object"),
        ("kind: Secret\napiVersion: v1", "the file must have apiVersion apiserver.config.k8s.io"),
        (HEAD, "resources: Required value: at least one resources is required"),
        (f"{HEAD}resources: []\nmore: 1", "more: unknown field"),
        (f"{HEAD}resources: []\nresources: []", "resources: duplicate key"),
        (f"{HEAD}resources: [1]", "resources[0]: must be an object"),
        (f"{HEAD}# {'x' * FILE_BYTES_MAX}", "large"),
    ],
)
def test_bad_files(text: str, problem: str) -> None:
    """A file of another type or format is rejected with the reason."""
    with pytest.raises(ConfigurationRefused) as caught:
        read_configuration(text.encode())
    assert problem in str(caught.value)


def test_many_problems_are_cut_short() -> None:
    """With any number of problems the message stays readable."""
    names = " ".join(f"A{number}" for number in range(100))
    with pytest.raises(ConfigurationRefused) as caught:
        read_configuration(document((names, [IDENTITY])))
    assert str(caught.value).endswith("and 90 more")
