"""IDs of encryption keys, as servers exchange them: `provider:name:fingerprint`.

    aesgcm:key1:6f1d0c3b9a52      a key with this name and secret
    kms:vault:projects/a/keys/7   a key of a plug-in, with the plug-in's own ID
    kms:vault:*                   in lists of readable keys only: all keys of that plug-in
    identity                      no encryption; empty as the ID of a write key

The fingerprint reveals nothing about the secret, but distinguishes two secrets of one name: servers
that use the same name for different secrets do not agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

IDENTITY: Final = "identity"
ANY: Final = "*"


def is_readable(key_id: str, readable: Iterable[str]) -> bool:
    """Whether a server with these readable keys can read values under a key."""
    wanted = key_id or IDENTITY
    return any(
        known == wanted or (known.endswith(f":{ANY}") and wanted.startswith(known[: -len(ANY)]))
        for known in readable
    )
