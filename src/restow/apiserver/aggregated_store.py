"""Determines which store an aggregated server uses: its own, or that of the main servers.

On the main servers' store it participates and reports like every other server. The store
itself shows which one it is: a namespace of the main servers exists in their store only.

A store of its own belongs to one cluster of main servers: others do not have the same namespaces,
and the objects of missing namespaces are deleted. So the store records that cluster.

The servers of one component must share their keys, or clients could not switch between them. So
they record a fingerprint in the store, and a server with other keys is refused.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status_error import StatusError
from restow.apiserver.pki import Pki
from restow.client import ApiClient, ClientError, metadata_of
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.errors import OpenRefused
from restow.storage.interface import Absent, Key, Put, Refused, Storage, Transaction

COMPONENTS_PREFIX: Final = "/restow/components/"
CLUSTER_KEY: Final = Key("/restow/localcluster")
"""Every main server writes it to its store."""
MAIN_KEY: Final = Key("/restow/main-cluster")
"""In a store of aggregated servers: the uid of a namespace of their main servers."""
PROBE_NAMESPACE: Final = "kube-system"
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")


async def cluster_of(client: ApiClient) -> str:
    """Return what identifies the main servers' cluster; constant as long as their store exists.

    Raises `OpenRefused` when the main servers do not return it.
    """
    try:
        uid = metadata_of(await client.get(NAMESPACES, PROBE_NAMESPACE)).get("uid")
    except (StatusError, ClientError) as error:
        raise OpenRefused(f"cannot identify the main servers' cluster: {error}") from error
    if not isinstance(uid, str) or not uid:
        raise OpenRefused(f"{client.server} does not return the uid of its cluster")
    return uid


async def is_shared(storage: Storage, cluster: str) -> bool:
    """Whether this is the main servers' store. Raises `OpenRefused` for that of another cluster."""
    item = await storage.get(Key(f"{OBJECTS_PREFIX}namespaces/{PROBE_NAMESPACE}"))
    if item is None:
        if await storage.get(CLUSTER_KEY) is not None:
            raise OpenRefused(
                "this store belongs to other main servers than those of --main-kubeconfig"
            )
        return False
    if _uid_of(item.value) != cluster:
        raise OpenRefused(
            f"the namespace {PROBE_NAMESPACE} of this store is not that of the main servers: it"
            " belongs to another cluster, or its values are encrypted and cannot be read here"
        )
    return True


async def check_main(storage: Storage, cluster: str) -> None:
    """Record the cluster in an aggregated server's own store, or refuse one of another cluster."""
    mark = cluster.encode()
    outcome = await storage.commit(Transaction((Absent(MAIN_KEY),), (Put(MAIN_KEY, mark),)))
    if (
        isinstance(outcome, Refused)
        and outcome.current is not None
        and outcome.current.value != mark
    ):
        raise OpenRefused(
            "this store belongs to aggregated servers of another cluster: objects in namespaces"
            " that this cluster does not have would be deleted. Check --main-kubeconfig and"
            " --store; if the change is intended, run: restow store delete --store ADDRESS"
            f" {MAIN_KEY}"
        )


async def check_component(storage: Storage, component: str, pki: Pki) -> None:
    """Refuse a store in which this component uses other keys."""
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
