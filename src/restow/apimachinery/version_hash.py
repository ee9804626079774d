"""The hash of a storage version: how discovery says in which version a resource is stored.

Not here: which version that is, and for which resources a hash is shown.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import Final

from restow.apimachinery.names import GroupVersionKind

# Enough to tell apart the versions of one resource; clients compare hashes and nothing else.
HASH_BYTES: Final = 8


@lru_cache(maxsize=4096)
def storage_version_hash(kind: GroupVersionKind) -> str:
    """Twelve characters that stand for the kind in the version that is stored."""
    text = f"{kind.group}/{kind.version}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:HASH_BYTES]).decode("ascii")
