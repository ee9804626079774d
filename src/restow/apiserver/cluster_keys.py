"""Checks whether a store belongs to the cluster whose keys this server has.

It runs before keys are generated as well: keys generated for the store of another cluster are
useless, and would block the directory to which that cluster's keys have to be copied.
"""

from __future__ import annotations

from pathlib import Path

from restow.aio import Runtime
from restow.apiserver.aggregated_store import CLUSTER_KEY
from restow.apiserver.pki import Pki
from restow.storage.errors import OpenRefused, StorageError
from restow.storage.interface import Absent, Put, Refused, Storage, Transaction
from restow.storage.sources import open_source


async def owner_of(address: str, runtime: Runtime) -> str:
    """Return the fingerprint of the keys that the servers of a store have.

    Empty: there is none, or the store is unreadable, which the server reports when it opens it.
    """
    try:
        source = await open_source(address, runtime)
        try:
            async for page in source.pages([CLUSTER_KEY]):
                for key, value in page:
                    if key == CLUSTER_KEY:
                        return value.decode(errors="replace")
        finally:
            await source.close()
    except (StorageError, OSError):
        pass
    return ""


async def check_keys_exist(address: str, pki: Path, runtime: Runtime) -> None:
    """Refuse a store that has an owner while there are no keys. Raises OpenRefused.

    Checks for keys again afterwards: another server may have generated them meanwhile.
    """
    if _exists(pki) or not await owner_of(address, runtime) or _exists(pki):
        return
    raise OpenRefused(
        f"this store belongs to a cluster whose keys are not in {pki}: copy the directory pki of"
        f" that cluster there, with its modes (cp -a pki {pki}); only with the same keys can"
        " servers use the store"
    )


async def check_cluster(storage: Storage, pki: Pki) -> None:
    """Refuse a store of a cluster with other keys; record these keys in a store without an
    owner."""
    fingerprint = pki.fingerprint.encode()
    create = Transaction((Absent(CLUSTER_KEY),), (Put(CLUSTER_KEY, fingerprint),))
    outcome = await storage.commit(create)
    if isinstance(outcome, Refused) and outcome.current is not None:
        found = outcome.current.value
        if found not in (fingerprint, pki.fingerprint_before.encode()):
            raise OpenRefused(
                "this store belongs to a cluster with other keys (its fingerprint is"
                f" {found.decode(errors='replace')}, ours {pki.fingerprint}): copy the directory"
                " 'pki' from the data directory of a server of that cluster"
            )


def _exists(pki: Path) -> bool:
    return pki.exists()
