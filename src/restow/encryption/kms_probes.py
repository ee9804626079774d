"""What shows that the plug-ins of two servers have the same keys behind one name.

The first server that uses a key of a plug-in seals a few bytes through it, and leaves them in the
store; every other server has to open them before it writes under that key. Otherwise each would
write what the other cannot read, and both would say `kms:vault:*` of what they read.

It proves that the plug-in decrypted under that key at that moment, and nothing of other keys, nor
of later: a plug-in may forget a key. Then values cannot be opened, which is told as such.

Not here: who writes to the store (`restow.apiserver`), and when it is asked for (`kms`).
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from restow.storage.interface import Key

PROBES_PREFIX: Final = "/restow/kms-probes/"
PROBE: Final = b"restow"
_DIGITS: Final = 16


class KmsProbes(Protocol):
    """The place where servers leave what they have sealed."""

    async def leave(self, key: Key, value: bytes) -> bytes:
        """Store a value if there is none; the value that is stored now.

        Raises `StorageError` when that is not known.
        """


def probe_key(plugin: str, key_id: str) -> Key:
    """Where the probe of a key of a plug-in is; ids may be long, and have any letters."""
    digest = hashlib.sha256(key_id.encode()).hexdigest()[:_DIGITS]
    return Key(f"{PROBES_PREFIX}{plugin}/{digest}")


def why_refused(plugin: str, key_id: str, why: str) -> str:
    """For people: what it means that a probe was not opened, and what to do."""
    return (
        f"the KMS plug-in {plugin} is not the one that other servers have under this name: it does"
        f" not open what they sealed under its key {key_id} ({why}). Writing with it would make"
        " objects that they cannot read. Let both plug-ins use the same keys, or give this one"
        " another name; if it is the right one, and nothing is stored under that key (restow census"
        f" --key kms:{plugin}:{key_id}), delete {probe_key(plugin, key_id)} (restow store delete)"
    )
