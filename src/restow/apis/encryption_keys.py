"""How keys are called among servers: `provider:name:fingerprint`.

    aesgcm:key1:6f1d0c3b9a52      a key of that name, and of that very secret
    kms:vault:projects/a/keys/7   a key of a plug-in, by the id that the plug-in gives it
    kms:vault:*                   only where keys are listed that can be read: all of that plug-in
    identity                      no encryption; as the id of a key that is written with: empty

The fingerprint tells nothing of the secret, and tells two secrets of one name apart: servers whose
files say the same name for different secrets do not agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

IDENTITY: Final = "identity"
ANY: Final = "*"


def is_readable(key_id: str, readable: Iterable[str]) -> bool:
    """Whether a server that can read these keys can read what is written under a key."""
    wanted = key_id or IDENTITY
    return any(
        known == wanted or (known.endswith(f":{ANY}") and wanted.startswith(known[: -len(ANY)]))
        for known in readable
    )
