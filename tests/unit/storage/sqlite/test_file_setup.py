"""Refused starts, each with a message that states the problem and what to do."""

import os
import stat
from pathlib import Path

import apsw
import pytest

from restow.aio import Runtime
from restow.storage.errors import OpenRefused, StoreDamaged
from restow.storage.interface import Done, Key, Put, Transaction
from restow.storage.sqlite import file_setup, open_sqlite, schema

PUT = Transaction((), (Put(Key("/restow/x"), b"1"),))


async def refusal(path: Path) -> str:
    """The message with which this file is refused."""
    with pytest.raises(OpenRefused) as caught:
        await open_sqlite(path, Runtime.system())
    return str(caught.value)


@pytest.mark.parametrize(
    "version", [(3, 40, 1), (3, 44, 5), (3, 45, 0), (3, 50, 6), (3, 51, 0), (3, 51, 2), (3, 7, 0)]
)
def test_sqlite_with_the_wal_reset_bug(version: tuple[int, int, int]) -> None:
    """Every SQLite that can corrupt a shared log is refused, and the message names the bug."""
    with pytest.raises(OpenRefused) as caught:
        file_setup.check_sqlite(version)
    text = str(caught.value)
    assert text.startswith(f"SQLite {'.'.join(map(str, version))} can corrupt")
    assert "WAL-reset bug" in text
    assert "at least 3.51.3 is needed: install a newer apsw" in text


@pytest.mark.parametrize(
    "version", [(3, 44, 6), (3, 44, 9), (3, 50, 7), (3, 51, 3), (3, 52, 0), (3, 54, 1), (4, 0, 0)]
)
def test_sqlite_without_the_bug(version: tuple[int, int, int]) -> None:
    """Fixed versions, including the two backports, are accepted."""
    file_setup.check_sqlite(version)


async def test_the_sqlite_in_use_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a store checks the SQLite that is actually loaded, before it accesses the file."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    assert "SQLite 3.51.2 can corrupt" in await refusal(tmp_path / "db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"hello", b"not a database at all\n" * 1000, b"{}" + bytes(8190)]
)
async def test_not_a_sqlite_file(content: bytes, tmp_path: Path) -> None:
    """A file of another kind is refused and not changed."""
    path = tmp_path / "db"
    path.write_bytes(content)
    assert f"{path} is not an SQLite file, so not a restow store" in await refusal(path)
    assert path.read_bytes() == content


async def test_a_foreign_sqlite_file(tmp_path: Path) -> None:
    """A database of another program is refused and not changed."""
    path = tmp_path / "db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    connection.close()
    content = path.read_bytes()
    text = await refusal(path)
    assert f"{path} is an SQLite file, but not a restow store: give the path of a new file" in text
    assert path.read_bytes() == content


async def test_a_newer_format(tmp_path: Path) -> None:
    """A store of a newer restow is refused, with both formats named."""
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    await storage.close()
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
    connection.close()
    text = await refusal(path)
    assert f"has format {schema.FORMAT + 1}; this restow supports formats up to" in text
    assert "use a newer restow" in text


MOUNTS = """\
22 27 0:20 / /proc rw,nosuid shared:5 - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 27 0:50 / /srv rw shared:40 - nfs4 server:/export rw,vers=4.2
91 90 0:51 / /srv/local\\040disk rw shared:41 - xfs /dev/vdb rw
92 27 0:52 / /mnt/share rw - fuse.sshfs me@host: rw
93 27 0:53 / /mnt/share rw - ext4 /dev/vdc rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/db", None),
        ("/srv/db", "nfs4 at /srv"),
        ("/srvx/db", None),
        ("/srv/local disk/db", None),
        ("/mnt/share/db", None),  # mounted twice: the last one counts
    ],
)
def test_a_network_file_system(path: str, kind: str | None) -> None:
    """The mount of a path decides, and a network file system is refused by name."""
    if kind is None:
        file_setup.check_file_system(Path(path), MOUNTS)
        return
    with pytest.raises(OpenRefused) as caught:
        file_setup.check_file_system(Path(path), MOUNTS)
    assert f"{path} is on a network file system ({kind})" in str(caught.value)
    assert "use a local disk, or etcd" in str(caught.value)


async def test_a_read_only_file(tmp_path: Path) -> None:
    """A file without write permission is refused, even to root."""
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    await storage.close()
    path.chmod(0o444)
    text = await refusal(path)
    assert f"{path} is read-only: make it writable for this user" in text


async def test_a_directory(tmp_path: Path) -> None:
    """A directory is refused as such."""
    assert f"{tmp_path} is not a regular file" in await refusal(tmp_path)


async def test_a_missing_parent(tmp_path: Path) -> None:
    """A path in a missing directory is refused, and the message names the directory."""
    text = await refusal(tmp_path / "nowhere" / "db")
    assert f"{tmp_path / 'nowhere'}" in text
    assert "create it first" in text
    assert list(tmp_path.iterdir()) == []


async def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    """A path below a regular file is refused."""
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in await refusal(tmp_path / "file" / "db")


async def test_a_broken_header_after_a_clean_stop(tmp_path: Path) -> None:
    """A store whose first page is damaged does not open."""
    path = tmp_path / "db"
    storage = await open_sqlite(path, Runtime.system())
    await storage.close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 400)
    with pytest.raises(StoreDamaged, match="the store file is damaged"):
        await open_sqlite(path, Runtime.system())


async def test_only_the_owner_may_read(tmp_path: Path) -> None:
    """The files are private to their owner, whatever the umask: they hold secrets."""
    path = tmp_path / "db"
    before = os.umask(0)
    try:
        storage = await open_sqlite(path, Runtime.system())
        assert isinstance(await storage.commit(PUT), Done)
        modes = {
            name: stat.S_IMODE(Path(f"{path}{name}").stat().st_mode)
            for name in ("", "-wal", "-shm", "-peers", "-peers/write.lock", "-peers/users.lock")
        }
        await storage.close()
    finally:
        os.umask(before)
    assert modes.pop("-peers") == 0o700
    assert set(modes.values()) == {0o600}


async def test_a_refused_start_leaves_nothing_open(tmp_path: Path) -> None:
    """A process whose start was refused keeps neither a file nor a lock."""
    path = tmp_path / "db"
    path.write_bytes(b"not a database at all\n" * 1000)
    await refusal(path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        await refusal(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_that_is_mounted_by_itself() -> None:
    """Its log would not be beside the mounted file; a mounted directory is accepted."""
    line = "36 35 98:0 /store.db {} rw,noatime master:1 - ext4 /dev/root rw"
    path = Path("/data/store.db")
    with pytest.raises(OpenRefused, match="is a mount point"):
        file_setup.check_file_system(path, line.format(path))
    file_setup.check_file_system(path, line.format("/data"))
