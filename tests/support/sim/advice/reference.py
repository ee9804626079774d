"""Which stored values a release can read: a simple reference, independent of the production code.

Each raw value is decoded on its own and looked up by its key: in the kinds that are the same in
all releases, in the kinds of the release (`releases.HOSTED`), and in the stored CRDs. It is
readable if exactly one of them owns the key, expects an object at that very key, has the value's
apiVersion and kind, and its encryption key. A built-in kind has priority over a CRD that was not
accepted.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from tests.support.sim.keys import IDENTITY, ROOTS, open_value
from tests.support.sim.releases import HOSTED

REGISTRY: Final = "/registry/"
CRD_ROOT: Final = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
SAME_IN_ALL: Final = tuple(
    REGISTRY + each
    for each in (
        *("namespaces/", "serviceaccounts/", "configmaps/", "secrets/", "leases/"),
        *("services/endpoints/", "endpoints/", "events/", "storageversions/"),
        *("migration.k8s.io/", "storagemigration.k8s.io/", "apiextensions.k8s.io/"),
        *(
            "internal.apiserver.k8s.io/",
            "kube-apiserver.internal.k8s.io/",
            "apiregistration.k8s.io/",
        ),
        "restow.dev/",
    )
)
"""Roots of kinds that all releases store in the same way."""


class Owner(NamedTuple):
    """A kind, with the facts that are needed to read and write it."""

    root: str
    kind: str
    api_versions: frozenset[str]
    is_namespaced: bool
    is_established: bool
    """For a CRD: whether servers have accepted it. They do not while one of them has the kind built
    in."""


class Reading(NamedTuple):
    """Values that a release cannot read, by key, with the reason."""

    unreadable: dict[str, str]
    unowned: dict[str, str]
    """Values under prefixes that neither the release nor any CRD owns."""


def kinds_of(release: str) -> list[Owner]:
    """The kinds of a release that differ between releases."""
    return [
        Owner(
            root=each.root,
            kind=each.kind,
            api_versions=frozenset(f"{each.group}/{version}" for version in each.versions),
            is_namespaced=each.scope == "Namespaced",
            is_established=False,
        )
        for each in HOSTED[release]
    ]


def custom_kinds(raw: Mapping[str, bytes]) -> list[Owner]:
    """The kinds that stored CRDs define."""
    found = []
    for key, value in raw.items():
        if key.startswith(CRD_ROOT):
            obj = orjson.loads(value)
            spec, status = obj["spec"], obj.get("status") or {}
            group = spec["group"]
            versions = frozenset(f"{group}/{each['name']}" for each in spec["versions"])
            found.append(
                Owner(
                    root=f"{REGISTRY}{group}/{spec['names']['plural']}/",
                    kind=spec["names"]["kind"],
                    api_versions=versions,
                    is_namespaced=spec["scope"] == "Namespaced",
                    is_established=any(
                        each["type"] == "Established" and each["status"] == "True"
                        for each in status.get("conditions") or ()
                    ),
                )
            )
    return found


def read(raw: Mapping[str, bytes], release: str, keys: Collection[str] | None = None) -> Reading:
    """The values of a store that a server of the release cannot read. `keys`: its encryption keys;
    None: all."""
    owners = [*kinds_of(release), *custom_kinds(raw)]
    reading = Reading({}, {})
    for root in {each.root for each in owners if each.is_established}:
        if sum(each.root == root for each in owners) > 1:
            reading.unreadable[root] = f"is defined by a CRD and built into {release}"
    for key, value in raw.items():
        if not key.startswith(REGISTRY):
            continue
        owner = owner_of(key, owners)
        if owner is None and not key.startswith(SAME_IN_ALL):
            reading.unowned[key] = f"neither {release} nor a CRD owns this prefix"
        elif why := why_sealed(key, value, keys) or why_unreadable(key, value, owner):
            reading.unreadable[key] = f"{why} ({release})"
    return reading


def owner_of(key: str, owners: Iterable[Owner]) -> Owner | None:
    return next((each for each in owners if key.startswith(each.root)), None)


def why_sealed(key: str, value: bytes, keys: Collection[str] | None) -> str:
    """Why a server with these encryption keys cannot decrypt a value; empty: it can."""
    found = open_value(key, value).key
    if not found:
        return "is encrypted, and no key decrypts it"
    if keys is None or not key.startswith(ROOTS) or found in keys:
        return ""
    return "is not encrypted" if found == IDENTITY else f"is encrypted with {found}"


def why_unreadable(key: str, value: bytes, owner: Owner | None) -> str:
    """Why the owner of a key cannot read its value; empty: it can. No owner: a fixed kind."""
    obj = decode(open_value(key, value).value)
    if obj is None:
        return "is not an object"
    if owner is None:
        return ""
    metadata = obj.get("metadata") or {}
    parts = [metadata.get("namespace"), metadata.get("name")][not owner.is_namespaced :]
    if key.removeprefix(owner.root).split("/") != parts:
        scope = "namespaced" if owner.is_namespaced else "cluster-scoped"
        return f"is not at the key of a {scope} object"
    if obj["apiVersion"] not in owner.api_versions or obj["kind"] != owner.kind:
        return f"is stored as {obj['kind']} in {obj['apiVersion']}"
    return ""


def decode(value: bytes) -> dict[str, Any] | None:
    """The object of a decrypted value; None: it is not an object."""
    try:
        obj = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(obj, dict) or not {"apiVersion", "kind", "metadata"} <= obj.keys():
        return None
    return obj


def hash_of(value: bytes) -> str:
    """The storage version hash of a decrypted value; empty: it is not an object."""
    obj = decode(value)
    if obj is None:
        return ""
    digest = hashlib.sha256(f"{obj['apiVersion']}/{obj['kind']}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()
