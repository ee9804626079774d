"""Service accounts of pods: account name, token volume and image pull secrets.

Names, paths and messages are those of Kubernetes. Mirror pods represent static pods of a node: they
are not modified, and may not reference secrets.

Pure. Not here: finding the account (`restow.admission.service_account`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Object = dict[str, Any]

ACCOUNT_DEFAULT: Final = "default"
MIRROR: Final = "kubernetes.io/config.mirror"
LIMITS_SECRETS: Final = "kubernetes.io/enforce-mountable-secrets"
VOLUME: Final = "kube-api-access-"
MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# The token lifetime of clients that request no specific one.
TOKEN_SECONDS: Final = 3607
_MODE: Final = 0o644
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
# Fields of volume sources that reference a secret, besides secret volumes.
_VOLUME_SECRETS: Final = ("secretRef", "nodePublishSecretRef")
_RUN: Final = (("initContainers", "init container"), ("containers", "container"))


def is_mirror(pod: Object) -> bool:
    return MIRROR in (pod["metadata"].get("annotations") or {})


def with_account(pod: Object, account: Object, *, suffix: str) -> Object:
    """Return a pod with its service account set. `suffix` is that of a new volume's name."""
    spec: Object = dict(pod.get("spec") or {})
    name = account["metadata"]["name"]
    spec |= {"serviceAccountName": name, "serviceAccount": name}
    if _mounts_token(spec, account):
        _mount_token(spec, f"{VOLUME}{suffix}")
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [
            {"name": each["name"]} if each.get("name") else {}
            for each in account["imagePullSecrets"]
        ]
    return {**pod, "spec": spec}


def _mounts_token(spec: Object, account: Object) -> bool:
    """Report whether the token is mounted; the pod's setting takes precedence."""
    for each in (spec, account):
        if (value := each.get("automountServiceAccountToken")) is not None:
            return bool(value)
    return True


def _mount_token(spec: Object, name: str) -> None:
    volumes = spec.get("volumes") or []
    existing = [each["name"] for each in volumes if str(each.get("name") or "").startswith(VOLUME)]
    name = existing[0] if existing else name
    is_needed = False
    for part, _ in _RUN:
        containers = []
        for container in spec.get(part) or ():
            mounts = container.get("volumeMounts") or []
            if any(each.get("mountPath") == MOUNT_PATH for each in mounts):
                containers.append(container)
                continue
            is_needed = True
            mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
            containers.append({**container, "volumeMounts": [*mounts, mount]})
        if containers:
            spec[part] = containers
    if is_needed and not existing:
        spec["volumes"] = [*volumes, {"name": name, "projected": _token_volume()}]


def _token_volume() -> Object:
    """Return the projected volume: token, CA certificate and namespace."""
    token = {"expirationSeconds": TOKEN_SECONDS, "path": "token"}
    certificates = {
        "name": "kube-root-ca.crt",
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }
    namespace = {
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    }
    return {
        "sources": [
            {"serviceAccountToken": token},
            {"configMap": certificates},
            {"downwardAPI": {"items": [namespace]}},
        ],
        "defaultMode": _MODE,
    }


# Violations.


def mirror_problem(pod: Object) -> str:
    """Return why a mirror pod is not allowed; empty if it is."""
    spec: Object = pod.get("spec") or {}
    if spec.get("serviceAccountName"):
        return "a mirror pod may not reference service accounts"
    if _has_secrets(spec):
        return "a mirror pod may not reference secrets"
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                return "a mirror pod may not use ServiceAccountToken volume projections"
    return ""


def _has_secrets(spec: Object) -> bool:
    if spec.get("imagePullSecrets"):
        return True
    for part in ("initContainers", "containers", "ephemeralContainers"):
        if any(True for each in spec.get(part) or () for _ in _secrets_of(each)):
            return True
    for volume in spec.get("volumes") or ():
        sources = [each for each in volume.values() if isinstance(each, dict)]
        if "secret" in volume or any(each.get("secretName") for each in sources):
            return True
        if any(each.get(name) for each in sources for name in _VOLUME_SECRETS):
            return True
        if any(each.get("secret") for each in (volume.get("projected") or {}).get("sources") or ()):
            return True
    return False


def limits_secrets(account: Object) -> bool:
    """Report whether pods of an account may reference only the secrets that it lists."""
    return (account["metadata"].get("annotations") or {}).get(LIMITS_SECRETS) in _TRUE


def secrets_problem(pod: Object, account: Object) -> str:
    """Return which referenced secret the account does not list; empty if there is none."""
    spec: Object = pod.get("spec") or {}
    name, listed = account["metadata"]["name"], _names(account.get("secrets"))
    because = f"is not allowed because service account {name} does not reference that"
    for volume in spec.get("volumes") or ():
        if (secret := volume.get("secret")) is not None:
            value = secret.get("secretName") or ""
            if value not in listed:
                return f'volume with secret.secretName="{value}" {because} secret'
    for part, words in _RUN:
        if why := _containers_problem(spec.get(part) or [], words, listed, because):
            return why
    pulled = _names(account.get("imagePullSecrets"))
    for index, each in enumerate(spec.get("imagePullSecrets") or ()):
        if (each.get("name") or "") not in pulled:
            value = each.get("name") or ""
            return f'imagePullSecrets[{index}].name="{value}" {because} imagePullSecret'
    return ""


def later_secrets_problem(pod: Object, account: Object) -> str:
    """Return the same for the ephemeral containers of a running pod."""
    name, listed = account["metadata"]["name"], _names(account.get("secrets"))
    because = f"is not allowed because service account {name} does not reference that"
    containers = (pod.get("spec") or {}).get("ephemeralContainers") or []
    return _containers_problem(containers, "ephemeral container", listed, because)


def _containers_problem(
    containers: list[Object], words: str, listed: frozenset[str], because: str
) -> str:
    for container in containers:
        for where, secret in _secrets_of(container):
            if secret not in listed:
                named = f"{words} {container.get('name') or ''} with {where}"
                return f'{named} referencing secret.secretName="{secret}" {because} secret'
    return ""


def _secrets_of(container: Object) -> Iterator[tuple[str, str]]:
    """Iterate over the secrets in a container's environment: where they are used, and their
    names.
    """
    for each in container.get("env") or ():
        if (key := (each.get("valueFrom") or {}).get("secretKeyRef")) is not None:
            yield f"envVar {each.get('name') or ''}", key.get("name") or ""
    for each in container.get("envFrom") or ():
        if (reference := each.get("secretRef")) is not None:
            yield "envFrom", reference.get("name") or ""


def _names(references: list[Object] | None) -> frozenset[str]:
    return frozenset(each.get("name") or "" for each in references or ())
