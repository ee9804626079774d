"""Service accounts of pods, and the secrets that pods may reference."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.pod_accounts import (
    LIMITS_SECRETS,
    MOUNT_PATH,
    is_mirror,
    later_secrets_problem,
    limits_secrets,
    mirror_problem,
    secrets_problem,
    with_account,
)

ACCOUNT: dict[str, Any] = {"metadata": {"name": "bob"}}
STRICT: dict[str, Any] = {
    "metadata": {"name": "bob", "annotations": {LIMITS_SECRETS: "true"}},
    "secrets": [{"name": "ok"}],
    "imagePullSecrets": [{"name": "pull"}],
}


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}}


def test_the_token_is_mounted_in_every_container() -> None:
    """A volume is added once, and mounted where nothing else is mounted."""
    taken = {"name": "t", "volumeMounts": [{"name": "v", "mountPath": MOUNT_PATH}]}
    obj = pod(containers=[{"name": "c"}, taken], initContainers=[{"name": "i"}])
    spec = with_account(obj, ACCOUNT, suffix="abcde")["spec"]
    mount = {"name": "kube-api-access-abcde", "readOnly": True, "mountPath": MOUNT_PATH}
    assert spec["containers"] == [{"name": "c", "volumeMounts": [mount]}, taken]
    assert spec["initContainers"] == [{"name": "i", "volumeMounts": [mount]}]
    [volume] = spec["volumes"]
    assert volume["name"] == "kube-api-access-abcde"
    assert [next(iter(each)) for each in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("bob", "bob")


def test_an_existing_volume_is_used() -> None:
    """A pod that is created again from a stored one already has the volume."""
    obj = pod(volumes=[{"name": "kube-api-access-there", "emptyDir": {}}])
    spec = with_account(obj, ACCOUNT, suffix="abcde")["spec"]
    assert len(spec["volumes"]) == 1
    assert spec["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-there"


@pytest.mark.parametrize(
    ("of_pod", "of_account", "is_mounted"),
    [(None, None, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_automount_setting(
    *, of_pod: bool | None, of_account: bool | None, is_mounted: bool
) -> None:
    """The pod's setting takes precedence over the account's."""
    obj, account = pod(), dict(ACCOUNT)
    if of_pod is not None:
        obj["spec"]["automountServiceAccountToken"] = of_pod
    if of_account is not None:
        account["automountServiceAccountToken"] = of_account
    spec = with_account(obj, account, suffix="x")["spec"]
    assert ("volumes" in spec) is is_mounted


def test_secrets_for_images() -> None:
    """The account's image pull secrets are used if a pod has none."""
    found = with_account(pod(), STRICT, suffix="x")
    assert found["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    own = pod(imagePullSecrets=[{"name": "own"}])
    assert with_account(own, STRICT, suffix="x")["spec"]["imagePullSecrets"] == [{"name": "own"}]


ENV = {"name": "E", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k"}}}
BECAUSE = "is not allowed because service account bob does not reference that"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"volumes": [{"name": "v", "secret": {"secretName": "ok"}}]}, ""),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "no"}}]},
            f'volume with secret.secretName="no" {BECAUSE} secret',
        ),
        (
            {"initContainers": [{"name": "i", "env": [ENV]}]},
            f'init container i with envVar E referencing secret.secretName="no" {BECAUSE} secret',
        ),
        (
            {"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "no"}}]}]},
            f'container c with envFrom referencing secret.secretName="no" {BECAUSE} secret',
        ),
        (
            {"imagePullSecrets": [{"name": "pull"}, {"name": "no"}]},
            f'imagePullSecrets[1].name="no" {BECAUSE} imagePullSecret',
        ),
    ],
)
def test_accounts_that_list_their_secrets(spec: dict[str, Any], problem: str) -> None:
    """Pods of such an account may reference no other secret."""
    assert limits_secrets(STRICT)
    assert not limits_secrets(ACCOUNT)
    assert secrets_problem(pod(**spec), STRICT) == problem


def test_containers_that_come_later() -> None:
    """Ephemeral containers may reference no other secret either."""
    obj = pod(ephemeralContainers=[{"name": "e", "env": [ENV]}])
    assert later_secrets_problem(obj, STRICT).startswith("ephemeral container e with envVar E")
    assert later_secrets_problem(pod(), STRICT) == ""


SECRETS = "a mirror pod may not reference secrets"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, ""),
        ({"serviceAccountName": "bob"}, "a mirror pod may not reference service accounts"),
        ({"imagePullSecrets": [{"name": "x"}]}, SECRETS),
        ({"volumes": [{"name": "v", "secret": {}}]}, SECRETS),
        ({"volumes": [{"name": "v", "azureFile": {"secretName": "x"}}]}, SECRETS),
        ({"volumes": [{"name": "v", "csi": {"nodePublishSecretRef": {"name": "x"}}}]}, SECRETS),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "x"}}]}}]},
            SECRETS,
        ),
        ({"ephemeralContainers": [{"name": "e", "env": [ENV]}]}, SECRETS),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, ""),
    ],
)
def test_mirror_pods(spec: dict[str, Any], problem: str) -> None:
    """Mirror pods may reference neither accounts nor secrets."""
    obj = pod(**spec)
    assert not is_mirror(obj)
    assert mirror_problem(obj) == problem
