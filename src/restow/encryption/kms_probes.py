"""Probes that show whether the KMS plug-ins of two servers have the same keys under one name.

The first server that uses a key of a plug-in encrypts a few bytes with it and stores them; every
other server must decrypt them before it writes under that key. Otherwise each server would write
values that the other cannot decrypt, while both report `kms:vault:*` as readable.

A probe proves that the plug-in could decrypt under that key at that time. It proves nothing about
other keys, nor about later: a plug-in may lose a key. Then values cannot be decrypted, which is
reported as such.

Not here: access to the store (`restow.apiserver`), and when a probe is used (`kms`).
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from restow.storage.interface import Key

PROBES_PREFIX: Final = "/restow/kms-probes/"
PROBE: Final = b"restow"
_DIGITS: Final = 16


class KmsProbes(Protocol):
    """Stores probes for all servers."""

    async def leave(self, key: Key, value: bytes) -> bytes:
        """Store a value if there is none; returns the value that is stored now.

        Raises `StorageError` when that is unknown.
        """


def probe_key(plugin: str, key_id: str) -> Key:
    """Key of the probe; hashed, as the IDs of KMS keys may be long and have any characters."""
    digest = hashlib.sha256(key_id.encode()).hexdigest()[:_DIGITS]
    return Key(f"{PROBES_PREFIX}{plugin}/{digest}")


def why_refused(plugin: str, key_id: str, why: str) -> str:
    """The error of a probe that cannot be decrypted, and what to do about it."""
    return (
        f"the KMS plug-in {plugin} does not have the keys that other servers have under this name:"
        f" it cannot decrypt what they encrypted under its key {key_id} ({why}). Writing with it"
        " would create objects that they cannot read. Use the same keys in both plug-ins, or give"
        " this one another name; if it is the right one, and nothing is stored under that key"
        f" (restow census --key kms:{plugin}:{key_id}), delete {probe_key(plugin, key_id)} (restow"
        " store delete)"
    )
