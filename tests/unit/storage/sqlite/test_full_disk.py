"""A full disk, and recovery when there is space again."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import StoreFull
from restow.storage.interface import EVERYTHING
from restow.storage.sqlite import open_sqlite
from tests.support.faulty_vfs import FaultyVfs
from tests.support.sqlite_full_disk import FREE_BYTES, survive_full_disk
from tests.unit.storage.sqlite.workload import integrity

# A private small file system: as root, or as root of a user namespace.
UNSHARE = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
MOUNT = 'mount -t tmpfs -o size=8m,mode=700 restow-test "$0" && exec "$@"'


def own_file_system(directory: Path, *command: str) -> list[str] | None:
    """The command, run with a small file system mounted there; None if impossible."""
    for unshare in UNSHARE:
        words = [*unshare, "sh", "-c", MOUNT, str(directory)]
        if (
            shutil.which("unshare")
            and subprocess.run([*words, "true"], check=False).returncode == 0
        ):
            return [*words, *command]
    return None


@pytest.fixture
def no_log() -> None:
    logging.getLogger("restow.storage.sqlite.writer").setLevel(logging.CRITICAL)


async def test_a_quota_that_is_lifted(
    fast_path: Path, no_log: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes are refused as StoreFull without partial writes, reads still work, and writes work
    again as soon as there is space."""
    vfs = FaultyVfs("quota")
    path = fast_path / "db"
    storage = await open_sqlite(path, Runtime.system(), vfs=vfs.name)

    def fill() -> None:
        vfs.quota_bytes = sum(vfs.sizes.values()) + FREE_BYTES

    def free() -> None:
        vfs.quota_bytes = None

    held = await survive_full_disk(storage, fill=fill, free=free)
    assert vfs.fired
    await storage.close()
    vfs.unregister()
    assert integrity(path) == "ok"
    storage = await open_sqlite(path, Runtime.system())
    content = {item.key: item.value for item in (await storage.range(EVERYTHING)).items}
    await storage.close()
    assert content == held


async def test_a_file_system_that_is_full(tmp_path: Path) -> None:
    """The same on a real one, if the tests may mount one."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    command = [sys.executable, "-m", "tests.support.sqlite_full_disk", str(mounted)]
    words = own_file_system(mounted, *command)
    if words is None:
        return  # no permission to mount: the quota above covers it
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "ok\n", ended.stderr


async def test_no_space_for_a_new_store(fast_path: Path) -> None:
    """A store without space for its creation is refused, and created when there is space."""
    vfs = FaultyVfs("no-room")
    path = fast_path / "db"
    for quota in range(0, 40_000, 2_000):
        vfs.quota_bytes = quota
        with pytest.raises(StoreFull, match="no space left for the store"):
            await open_sqlite(path, Runtime.system(), vfs=vfs.name)
    vfs.quota_bytes = None
    storage = await open_sqlite(path, Runtime.system(), vfs=vfs.name)
    await storage.close()
    vfs.unregister()
    assert integrity(path) == "ok"
