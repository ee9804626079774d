"""Which store an aggregated server has: one of its own, or that of the main servers.

In the main servers' store it is a member like every other, and reports there. Which it is, is not
asked of anybody: a namespace of the main servers is found in their store, and nowhere else.

The servers of one component share their keys, or clients could not go from one to another; so they
leave a mark in the store, and one with other keys is refused.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.apiserver.pki import Pki
from restow.client import ApiClient, metadata_of
from restow.machinery.names import GroupVersionResource
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.errors import OpenRefused
from restow.storage.interface import Absent, Key, Put, Refused, Storage, Transaction

COMPONENTS_PREFIX: Final = "/restow/components/"
CLUSTER_KEY: Final = Key("/restow/cluster")
"""Every main server leaves it in its store."""
PROBE_NAMESPACE: Final = "kube-system"
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")


async def is_shared(storage: Storage, client: ApiClient) -> bool:
    """Whether the store is that of the main servers. Raises `OpenRefused` for one of others."""
    item = await storage.get(Key(f"{OBJECTS_PREFIX}namespaces/{PROBE_NAMESPACE}"))
    if item is None:
        if await storage.get(CLUSTER_KEY) is not None:
            raise OpenRefused("this store belongs to main servers, but not to those of the API")
        return False
    theirs = metadata_of(await client.get(NAMESPACES, PROBE_NAMESPACE)).get("uid")
    if _uid_of(item.value) != theirs:
        raise OpenRefused(
            f"this store has another namespace {PROBE_NAMESPACE} than {client.server}: it belongs"
            " to another cluster, or its values are encrypted and cannot be read here"
        )
    return True


async def check_component(storage: Storage, component: str, pki: Pki) -> None:
    """Refuse a store in which this component has other keys."""
    key, mark = Key(COMPONENTS_PREFIX + component), pki.fingerprint.encode()
    outcome = await storage.commit(Transaction((Absent(key),), (Put(key, mark),)))
    if (
        isinstance(outcome, Refused)
        and outcome.current is not None
        and outcome.current.value != mark
    ):
        found = outcome.current.value.decode(errors="replace")
        raise OpenRefused(
            f"servers of component {component} with other keys use this store (their fingerprint"
            f" is {found}, ours {pki.fingerprint}): copy the directory 'pki' from the data"
            " directory of one of them, or choose another --component"
        )


def _uid_of(value: bytes) -> Any:
    try:
        return metadata_of(orjson.loads(value)).get("uid")
    except orjson.JSONDecodeError:
        return None
