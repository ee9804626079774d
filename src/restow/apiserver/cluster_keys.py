"""Whether a store belongs to a cluster whose keys are not here; asked before new keys are made.

A directory `pki` that is made for a store of others is of no use, and stands in the way of the one
that has to be copied there. Not here: the comparison with keys that are there (`server`).
"""

from __future__ import annotations

from pathlib import Path

from restow.aio import Runtime
from restow.apiserver.aggregated_store import CLUSTER_KEY
from restow.storage.errors import OpenRefused, StorageError
from restow.storage.sources import open_source


async def owner_of(address: str, runtime: Runtime) -> str:
    """The fingerprint of the keys that the servers of a store have.

    Empty: there is none, or the store cannot be read, of which the server tells when it opens it.
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

    It is looked for the keys again afterwards: another server may have made them meanwhile.
    """
    if _exists(pki) or not await owner_of(address, runtime) or _exists(pki):
        return
    raise OpenRefused(
        f"this store belongs to a cluster whose keys are not in {pki}: copy the directory pki of"
        f" that cluster there, with its modes (cp -a pki {pki}); only with the same keys can"
        " servers use the store"
    )


def _exists(pki: Path) -> bool:
    return pki.exists()
