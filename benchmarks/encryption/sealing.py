"""Cost of encrypting and decrypting one value, in this process, without a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource
from restow.encryption.configuration import read_configuration
from restow.encryption.keyring import Keyring
from restow.storage.interface import Key
from tests.support.encryption_files import write_encryption_file

VALUE: Final = b"x" * 1024
KEY: Final = Key("/registry/configmaps/restow-bench/item-000000")
CONFIG_MAPS: Final = GroupResource("", "configmaps")
CALLS: Final = 2_000


class Cost(NamedTuple):
    """Microseconds for 1 KB."""

    seal: float
    open: float


def measure(directory: Path, providers: tuple[str, ...], *, rounds: int) -> dict[str, Cost]:
    """The medians of rounds in which the providers alternate."""
    rings = {each: _keyring(directory, each) for each in providers}
    found: dict[str, list[Cost]] = {each: [] for each in providers}
    for _ in range(rounds):
        for name, keys in rings.items():
            found[name].append(_measure(keys))
    return {
        name: Cost(median(each.seal for each in costs), median(each.open for each in costs))
        for name, costs in found.items()
    }


def _measure(keys: Keyring) -> Cost:
    key_id = keys.write_key(CONFIG_MAPS)
    sealed = keys.seal(key_id, KEY, VALUE)
    assert keys.open(KEY, sealed).value == VALUE
    return Cost(
        seal=_microseconds(lambda: keys.seal(key_id, KEY, VALUE)),
        open=_microseconds(lambda: keys.open(KEY, sealed)),
    )


def _microseconds(call: Callable[[], object]) -> float:
    """CPU time, not wall-clock time: other processes may be running."""
    begin = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - begin) / CALLS * 1e6


def _keyring(directory: Path, provider: str) -> Keyring:
    file = write_encryption_file(directory / f"sealing-{provider.partition(':')[0]}", provider)
    return Keyring(read_configuration(file.read_bytes()), Runtime.system(), plugins={})
