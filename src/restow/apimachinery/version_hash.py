"""The storage version hash, with which discovery identifies the storage version of a resource.

Not here: which version is stored, and for which resources discovery shows a hash.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import Final

from restow.apimachinery.names import GroupVersionKind

# Enough to distinguish the versions of one resource; clients only compare hashes for equality.
HASH_BYTES: Final = 8
KNOWN_MAX: Final = 4096

_known: Final[dict[str, str]] = {}
"""The `apiVersion` of each hash that this process has computed, the last ones."""


@lru_cache(maxsize=KNOWN_MAX)
def storage_version_hash(kind: GroupVersionKind) -> str:
    """Return the twelve-character hash of a kind in its storage version."""
    # KEP-35 1.3: a hash of group, version and kind differs when the version does
    text = f"{kind.group}/{kind.version}/{kind.kind}"
    # KEP-35 1.2: an opaque value, not the version itself
    found = base64.b64encode(hashlib.sha256(text.encode()).digest()[:HASH_BYTES]).decode("ascii")
    if len(_known) >= KNOWN_MAX:
        del _known[next(iter(_known))]
    _known[found] = kind.api_version
    return found


def api_version_of_hash(version_hash: str) -> str | None:
    """Return the `apiVersion` of a hash for display; None if this process has not computed it.

    Only for people: no decision may depend on it.
    """
    return _known.get(version_hash)


def version_text(version_hash: str) -> str:
    """As in `apps/v1 (hash …)`; the hash alone if this process does not know the version."""
    version = api_version_of_hash(version_hash)
    return version_hash if version is None else f"{version} (hash {version_hash})"
