"""Parses an EncryptionConfiguration (`apiserver.config.k8s.io/v1`) into values.

    resources:
    - resources: [secrets, deployments.apps, "*.apps", "*.", "*.*"]
      providers:                          the first one encrypts, all of them decrypt
      - aesgcm: {keys: [{name: key1, secret: <base64>}]}
      - kms: {apiVersion: v2, name: vault, endpoint: unix:///run/kms.sock, timeout: 3s}
      - identity: {}

Whatever kube-apiserver rejects is rejected with its wording, each problem with its path in the
file; `resource_rules` rejects some more. No message contains a secret, or a text that may be one
(`redaction`).

Not here: ciphers (`providers`, `kms`), and reading the file (`key_reload`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from restow.apimachinery.names import GroupResource
from restow.apimachinery.status import StatusError
from restow.apimachinery.type_values import parse_duration
from restow.apimachinery.yaml_codec import YAML_SIZE_MAX, decode
from restow.encryption.redaction import (
    shown,
    shown_field,
    shown_path,
    shown_problem,
    shown_resource,
)
from restow.encryption.resource_rules import (
    EVERYTHING,
    find_mask,
    find_overlaps,
    problem_of_resource,
    read_resource,
    write_resource,
)
from restow.kinds.builtin import find_resource
from restow.storage.errors import OpenRefused

API_VERSION: Final = "apiserver.config.k8s.io/v1"
KIND: Final = "EncryptionConfiguration"
FILE_BYTES_MAX: Final = YAML_SIZE_MAX
PROBLEMS_SHOWN_MAX: Final = 10
NAME_BYTES_MAX: Final = 253
"""Limit for names of keys and plug-ins, which are part of StorageVersions and of every value."""
SOCKET_PATH_BYTES_MAX: Final = 107
KMS_TIMEOUT_SECONDS: Final = 3.0
KMS_TIMEOUT_SECONDS_MAX: Final = 60.0
"""A longer timeout would block readers; kube-apiserver has no limit."""

Cipher = Literal["aescbc", "aesgcm", "secretbox"]
_CIPHERS: Final[dict[str, tuple[Cipher, tuple[int, ...]]]] = {
    "aescbc": ("aescbc", (16, 24, 32)),
    "aesgcm": ("aesgcm", (16, 24, 32)),
    "secretbox": ("secretbox", (32,)),
}
_PROVIDERS: Final = (*_CIPHERS, "kms", "identity")
_NONE_OF_THEM: Final = (
    "provider does not contain any of the expected providers:"
    " KMS, AESGCM, AESCBC, Secretbox, Identity"
)
_MORE_THAN_ONE: Final = (
    "more than one provider specified in a single element,"
    " should split into different list elements"
)
_KMS_V1: Final = (
    "KMS v1 is not supported: it is deprecated and calls the plug-in for every object. Use a"
    " plug-in of KMS v2 and set apiVersion: v2; values that kube-apiserver wrote with v1 must be"
    " rewritten by it under another provider before this server can read them"
)


class ConfigurationRefused(OpenRefused):
    """An invalid encryption configuration; the text names the path and the reason."""


@dataclass(frozen=True, slots=True)
class LocalKey:
    """A key whose secret is in the file."""

    name: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LocalProvider:
    """A cipher with its keys, the encrypting one first."""

    cipher: Cipher
    keys: tuple[LocalKey, ...]


@dataclass(frozen=True, slots=True)
class KmsProvider:
    """A KMS v2 plug-in."""

    name: str
    socket: str
    """Path of its socket; one that starts with `@` is an abstract socket, without a file."""
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """No encryption."""


Provider = LocalProvider | KmsProvider | IdentityProvider
PLAIN: Final[tuple[Provider, ...]] = (IdentityProvider(),)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of a file: providers by resource, with `*` for all of a group, or all groups."""

    rules: dict[GroupResource, tuple[Provider, ...]]
    digest: str
    """The SHA-256 of the file, as kube-apiserver reports it."""

    def providers_of(self, resource: GroupResource) -> tuple[Provider, ...]:
        """The providers of a resource, the encrypting one first. Pinned kinds have none."""
        kind = find_resource(*resource)
        if kind is not None and kind.pinned:
            return PLAIN
        for rule in (resource, GroupResource(resource.group, "*"), EVERYTHING):
            if rule in self.rules:
                return self.rules[rule]
        return PLAIN

    def plugins(self) -> tuple[KmsProvider, ...]:
        """The KMS plug-ins, in the order of the file."""
        found = (each for providers in self.rules.values() for each in providers)
        return tuple(dict.fromkeys(each for each in found if isinstance(each, KmsProvider)))


NOTHING: Final = Configuration({}, "")
"""Used without a file: nothing is encrypted."""


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def read_configuration(data: bytes) -> Configuration:
    """Parse a file in YAML or JSON. Raises `ConfigurationRefused`."""
    if not data.strip():
        raise ConfigurationRefused("the file is empty")
    try:
        fields, duplicates = decode(data, size_max=FILE_BYTES_MAX)
    except StatusError as error:
        raise ConfigurationRefused(shown_problem(str(error))) from None
    reader = _Reader()
    for path in duplicates:
        reader.note(shown_path(path), "duplicate key")
    rules = reader.read_file(fields)
    if reader.problems:
        messages = reader.problems[:PROBLEMS_SHOWN_MAX]
        if len(reader.problems) > len(messages):
            messages.append(f"and {len(reader.problems) - len(messages)} more")
        raise ConfigurationRefused("; ".join(messages))
    return Configuration(rules, digest_of(data))


class _Reader:
    """Walks through a file and collects its problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._plugins: set[str] = set()

    def note(self, path: str, text: str) -> None:
        self.problems.append(f"{path}: {text}" if path else text)

    def _invalid(self, path: str, value: object, text: str) -> None:
        """Add a problem with a value; the caller must have passed the value through `shown`."""
        self.note(path, f'Invalid value: "{value}": {text}')

    def _required(self, path: str, text: str) -> None:
        self.note(path, f"Required value: {text}")

    def _fields(self, path: str, value: Any, known: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.note(path, "must be an object")
            return {}
        for name in value:
            if name not in known:
                self.note(shown_field(path, name), "unknown field")
        return value

    def _list(self, path: str, value: Any) -> list[Any]:
        if value is None or isinstance(value, list):
            return value or []
        self.note(path, "must be a list")
        return []

    def _text(self, path: str, value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        self.note(path, "must be a string")  # the value is not shown: it may be a secret
        return ""

    def read_file(self, value: Any) -> dict[GroupResource, tuple[Provider, ...]]:
        fields = self._fields("", value, ("apiVersion", "kind", "resources"))
        if (fields.get("apiVersion"), fields.get("kind")) != (API_VERSION, KIND):
            self.note("", f"the file must have apiVersion {API_VERSION} and kind {KIND}")
            return {}
        rules: dict[GroupResource, tuple[Provider, ...]] = {}
        blocks = self._list("resources", fields.get("resources"))
        if not blocks:
            self._required("resources", "at least one resources is required")
        for number, block in enumerate(blocks):
            path = f"resources[{number}]"
            content = self._fields(path, block, ("resources", "providers"))
            resources = self._read_resources(f"{path}.resources", content.get("resources"), rules)
            providers = self._read_providers(f"{path}.providers", content.get("providers"))
            for resource in resources:
                rules[resource] = rules.get(resource, ()) + providers
        return rules

    def _read_resources(
        self, path: str, value: Any, earlier: dict[GroupResource, tuple[Provider, ...]]
    ) -> list[GroupResource]:
        names = self._list(path, value)
        if not names:
            self._required(path, f"at least one {path} is required")
        texts = [self._text(f"{path}[{number}]", name) for number, name in enumerate(names)]
        for problem in find_overlaps(texts):
            self._invalid(path, ", ".join(map(shown_resource, texts)), problem)
        found = []
        for number, text in enumerate(texts):
            problem = problem_of_resource(text)
            if problem:
                self._invalid(f"{path}[{number}]", shown_resource(text), problem)
                continue
            resource = read_resource(text)
            mask = find_mask(resource, earlier)
            if mask is not None:
                self.note(
                    f"{path}[{number}]",
                    f'resource "{shown_resource(write_resource(resource))}" is masked by earlier'
                    f' rule "{shown_resource(write_resource(mask))}"',
                )
            found.append(resource)
        return found

    def _read_providers(self, path: str, value: Any) -> tuple[Provider, ...]:
        found = []
        given = self._list(path, value)
        if not given:
            self._required(path, f"at least one {path} is required")
        for number, each in enumerate(given):
            here = f"{path}[{number}]"
            fields = self._fields(here, each, _PROVIDERS)
            # An empty `aescbc:` counts as absent, as in kube-apiserver.
            present = [name for name in _PROVIDERS if name in fields and fields[name] is not None]
            if len(present) != 1:
                self.note(here, _MORE_THAN_ONE if present else _NONE_OF_THEM)
                continue
            provider = self._read_provider(f"{here}.{present[0]}", present[0], fields[present[0]])
            if provider is not None:
                found.append(provider)
        return tuple(found)

    def _read_provider(self, path: str, name: str, value: Any) -> Provider | None:
        if name == "kms":
            return self._read_plugin(path, value)
        if name == "identity":
            self._fields(path, value, ())
            return IdentityProvider()
        cipher, sizes = _CIPHERS[name]
        fields = self._fields(path, value, ("keys",))
        given = self._list(f"{path}.keys", fields.get("keys"))
        if not given:
            self._required(f"{path}.keys", "at least one keys is required")
        keys: list[LocalKey] = []
        for number, each in enumerate(given):
            here = f"{path}.keys[{number}]"
            key = self._read_key(here, each, sizes)
            if key is None:
                continue
            if any(key.name == other.name for other in keys):
                self._invalid(f"{here}.name", shown(key.name), "duplicate key name")
            keys.append(key)
        return LocalProvider(cipher, tuple(keys))

    def _read_key(self, path: str, value: Any, sizes: tuple[int, ...]) -> LocalKey | None:
        fields = self._fields(path, value, ("name", "secret"))
        name = self._read_name(f"{path}.name", fields.get("name"), "key")
        text = self._text(f"{path}.secret", fields.get("secret"))
        if not text:
            self._required(f"{path}.secret", "secret is a mandatory field for a key")
            return None
        try:
            secret = base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
        except (binascii.Error, ValueError):
            self._invalid(f"{path}.secret", "REDACTED", "secrets must be base64 encoded")
            return None
        if len(secret) not in sizes:
            expected = " ".join(map(str, sizes))
            self._invalid(
                f"{path}.secret",
                "REDACTED",
                f"secret is not of the expected length, got {len(secret)},"
                f" expected one of [{expected}]",
            )
            return None
        return LocalKey(name, secret)

    def _read_name(self, path: str, value: Any, owner: str) -> str:
        name = self._text(path, value)
        if not name:
            self._required(path, f"name is a mandatory field for a {owner}")
        elif ":" in name:
            # A colon ends the name before a value. kube-apiserver permits it in names of keys.
            what = "invalid KMS provider name" if owner == "provider" else "invalid name"
            self._invalid(path, shown(name), f"{what} {shown(name)}, must not contain ':'")
        elif len(name.encode()) > NAME_BYTES_MAX or not name.isprintable():
            self.note(
                path, f"a name must have at most {NAME_BYTES_MAX} bytes, all of them printable"
            )
        return name

    def _read_plugin(self, path: str, value: Any) -> Provider | None:
        known = ("apiVersion", "name", "cachesize", "endpoint", "timeout")
        fields = self._fields(path, value, known)
        if not isinstance(value, dict):
            return None  # already reported
        # The default version is v1, as in kube-apiserver.
        version = self._text(f"{path}.apiVersion", fields.get("apiVersion")) or "v1"
        if version == "v1":
            self._invalid(f"{path}.apiVersion", version, _KMS_V1)
            return None
        if version != "v2":
            text = "unsupported apiVersion for KMS provider, only v2 is supported"
            self._invalid(f"{path}.apiVersion", shown(version), text)
        name = self._read_name(f"{path}.name", fields.get("name"), "provider")
        if name in self._plugins:
            text = f"duplicate KMS provider name {shown(name)}, names must be unique"
            self._invalid(f"{path}.name", shown(name), text)
        self._plugins.add(name)
        if fields.get("cachesize") is not None:
            size = shown(fields["cachesize"])
            self._invalid(f"{path}.cachesize", size, "cachesize is not supported in v2")
        timeout_seconds = self._read_timeout(f"{path}.timeout", fields.get("timeout"))
        socket = self._read_endpoint(f"{path}.endpoint", fields.get("endpoint"))
        return KmsProvider(name, socket, timeout_seconds)

    def _read_timeout(self, path: str, value: Any) -> float:
        text = self._text(path, value)
        if not text:
            return KMS_TIMEOUT_SECONDS
        try:
            seconds = parse_duration(text) / 1e9
        except ValueError:
            self._invalid(path, shown(text), "invalid duration")
            return KMS_TIMEOUT_SECONDS
        if seconds <= 0:
            self._invalid(path, shown(text), "timeout should be a positive value")
        elif seconds > KMS_TIMEOUT_SECONDS_MAX:
            self._invalid(
                path, shown(text), f"timeout must be at most {KMS_TIMEOUT_SECONDS_MAX:.0f}s"
            )
        return seconds

    def _read_endpoint(self, path: str, value: Any) -> str:
        endpoint = self._text(path, value)
        if not endpoint:
            self._invalid(path, "", "endpoint is a mandatory field for a kms")
            return ""
        scheme, separator, rest = endpoint.partition("://")
        if not separator or scheme != "unix":
            given = shown(scheme) if separator else ""
            text = f'unsupported scheme "{given}" for KMS provider, only unix is supported'
            self._invalid(path, shown(endpoint), text)
            return ""
        if not rest.startswith("/") or rest in ("/", "/@") or "\0" in rest:
            text = "invalid endpoint for kms provider, error: must be unix:// and an absolute path"
            self._invalid(path, shown(endpoint), text)
            return ""
        socket = rest[1:] if rest.startswith("/@") else rest
        if len(socket.encode()) > SOCKET_PATH_BYTES_MAX:
            text = f"a socket path must have at most {SOCKET_PATH_BYTES_MAX} bytes"
            self._invalid(path, shown(endpoint), text)
        return socket
