"""Which store an aggregated server has: one of its own, or that of the main servers.

In the main servers' store it is a member like every other, and reports there. Which it is, is not
asked of anybody: a namespace of the main servers is found in their store, and nowhere else.

A store of its own belongs to the main servers that it was made for: others do not have the same
namespaces, and what is in a namespace that is gone is deleted. So their cluster is noted there.

The servers of one component share their keys, or clients could not go from one to another; so they
leave a mark in the store, and one with other keys is refused.
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
"""Every main server leaves it in its store."""
MAIN_KEY: Final = Key("/restow/main-cluster")
"""In a store of aggregated servers: the uid of a namespace of their main servers."""
PROBE_NAMESPACE: Final = "kube-system"
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")


async def cluster_of(client: ApiClient) -> str:
    """What tells the main servers' cluster from others; it stays as long as their store does.

    Raises `OpenRefused` when they do not say.
    """
    try:
        uid = metadata_of(await client.get(NAMESPACES, PROBE_NAMESPACE)).get("uid")
    except (StatusError, ClientError) as error:
        raise OpenRefused(f"the main servers cannot be asked who they are: {error}") from error
    if not isinstance(uid, str) or not uid:
        raise OpenRefused(f"{client.server} does not say which cluster it is")
    return uid


async def is_shared(storage: Storage, cluster: str) -> bool:
    """Whether the store is that of the main servers. Raises `OpenRefused` for one of others."""
    item = await storage.get(Key(f"{OBJECTS_PREFIX}namespaces/{PROBE_NAMESPACE}"))
    if item is None:
        if await storage.get(CLUSTER_KEY) is not None:
            raise OpenRefused("this store belongs to main servers, but not to those of the API")
        return False
    if _uid_of(item.value) != cluster:
        raise OpenRefused(
            f"this store has another namespace {PROBE_NAMESPACE} than the main servers: it belongs"
            " to another cluster, or its values are encrypted and cannot be read here"
        )
    return True


async def check_main(storage: Storage, cluster: str) -> None:
    """Note in a store of one's own whose it is, or refuse it if that was noted otherwise."""
    mark = cluster.encode()
    outcome = await storage.commit(Transaction((Absent(MAIN_KEY),), (Put(MAIN_KEY, mark),)))
    if (
        isinstance(outcome, Refused)
        and outcome.current is not None
        and outcome.current.value != mark
    ):
        raise OpenRefused(
            "this store belongs to aggregated servers of another cluster: what is in namespaces"
            " that this one does not have would be deleted. Check --main-kubeconfig and --store; if"
            f" that is wanted, say so: restow store delete --store ADDRESS {MAIN_KEY}"
        )


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
