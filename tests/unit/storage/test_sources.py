"""SQLite files and a running etcd as sources: one revision, and nothing is changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.census import open_source, take_census
from restow.storage.errors import OpenRefused, StorageError, Unavailable
from restow.storage.etcd import read_only as etcd_reading
from restow.storage.interface import Revision, Span
from restow.storage.sqlite.read_only import open_read_only
from tests.support.etcd_process import EtcdCluster, EtcdUser, start_etcd
from tests.unit.census.stores import (
    as_json,
    count,
    files_beside,
    fill,
    opened,
    put_all,
    read_all,
)

PODS = {f"/registry/pods/default/{number:04}": as_json("v1", "Pod") for number in range(1500)}
READ = "import sys; from restow.cli.main import main; sys.exit(main(sys.argv[1:]))"


def census_in_another_process(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", READ, "census", "--store", f"sqlite:{path}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


async def test_closed_file(tmp_path: Path) -> None:
    """A file that is not in use is read alone, and no file is created beside it."""
    path = tmp_path / "store.db"
    await fill(f"sqlite:{path}", {**PODS, "/restow/own": b"1"})
    before = files_beside(path)
    assert await read_all(f"sqlite:{path}", "/registry/") == PODS
    assert files_beside(path) == before


async def test_beside_a_writing_handle(tmp_path: Path) -> None:
    """While servers use the file, a census in another process sees the latest commit."""
    path = tmp_path / "store.db"
    async with opened(f"sqlite:{path}") as storage:
        await put_all(storage, PODS)
        done = census_in_another_process(path)
        assert done.returncode == 0, done.stderr
        assert "1,500 objects of 1 resource at revision 1501" in done.stdout
        await put_all(storage, {"/registry/pods/default/new": as_json("v1", "Pod")})
        assert "1,501 objects" in census_in_another_process(path).stdout
    assert not path.with_name("store.db-wal").exists()  # the census had not kept it


async def test_one_revision_while_others_write(tmp_path: Path) -> None:
    """Writes after the file was opened are not visible."""
    path = tmp_path / "store.db"
    async with opened(f"sqlite:{path}") as storage:
        await put_all(storage, PODS)
        source = await open_source(f"sqlite:{path}", Runtime.system())
        await put_all(storage, dict.fromkeys(PODS, b"?"))
        census = await take_census(source)
        await source.close()
        assert census.revision == 1501
        assert census.unreadable == ()
        assert census.objects == len(PODS)


async def test_copy_with_a_log(tmp_path: Path) -> None:
    """If a file was copied with its log, both are read, not changed, and no file is added."""
    path, copy = tmp_path / "store.db", tmp_path / "copy" / "store.db"
    copy.parent.mkdir()
    async with opened(f"sqlite:{path}") as storage:
        await put_all(storage, PODS)
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    assert Path(f"{copy}-wal").stat().st_size > 0
    before = files_beside(copy)
    assert await read_all(f"snapshot:{copy}", "/registry/") == PODS
    assert files_beside(copy) == before


async def test_files_left_by_a_crash_are_read(tmp_path: Path) -> None:
    """With a leftover index of the log, both file and log are read, and not changed."""
    path, copy = tmp_path / "store.db", tmp_path / "copy" / "store.db"
    copy.parent.mkdir()
    async with opened(f"sqlite:{path}") as storage:
        await put_all(storage, PODS)
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    before = {suffix: Path(f"{copy}{suffix}").read_bytes() for suffix in ("", "-wal")}
    assert await read_all(f"sqlite:{copy}", "/registry/") == PODS
    assert {suffix: Path(f"{copy}{suffix}").read_bytes() for suffix in ("", "-wal")} == before
    assert sorted(files_beside(copy)) == ["store.db", "store.db-shm", "store.db-wal"]


async def test_file_that_may_not_be_written(tmp_path: Path) -> None:
    """Read permission is sufficient, for the file and its directory."""
    path = tmp_path / "closed" / "store.db"
    path.parent.mkdir()
    await fill(f"sqlite:{path}", PODS)
    shutil.rmtree(path.with_name("store.db-peers"))
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        assert len(await read_all(f"sqlite:{path}")) == len(PODS)
    finally:
        path.parent.chmod(0o700)


async def test_file_that_comes_into_use(tmp_path: Path) -> None:
    """A file that was read without locks and changed meanwhile gives an error, no wrong count."""
    path = tmp_path / "store.db"
    await fill(f"sqlite:{path}", PODS)
    file = open_read_only(path)
    rows = file.rows([Span.of_prefix("/")])
    next(rows)
    os.utime(path, ns=(0, 0))
    with pytest.raises(Unavailable, match="came into use"):
        list(rows)
    file.close()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("nonsense", "is nothing to take a census of"),
        ("memory:", "is nothing to take a census of"),
        ("sqlite:{}/none.db", "does not exist"),
        ("sqlite:{}", "does not exist, or is not a file"),
        ("sqlite:{}/text", "is not an SQLite file"),
        ("sqlite:{}/other.db", "is an SQLite file, but not a restow store"),
        ("snapshot:{}/other.db", "is an SQLite file, but not a restow store"),
        ("snapshot:{}/none.db", "cannot be read: No such file"),
        ("snapshot:{}", "cannot be read: Is a directory"),
        ("etcd://nowhere", "is not HOST:PORT"),
    ],
)
async def test_refusals(tmp_path: Path, address: str, text: str) -> None:
    """Invalid sources are refused with the reason, and nothing is created."""
    (tmp_path / "text").write_text("no database" * 1000)
    connection = __import__("sqlite3").connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE a (b)")
    connection.close()
    before = files_beside(tmp_path / "text")
    with pytest.raises(OpenRefused, match=text):
        await read_all(address.format(tmp_path))
    assert files_beside(tmp_path / "text") == before


async def test_etcd(etcd: EtcdCluster) -> None:
    """etcd is read in pages at the initial revision, and gets no write."""
    async with opened(etcd.url) as storage:
        await put_all(storage, PODS)
        source = await open_source(etcd.url, Runtime.system())
        assert await source.count(("/registry/",)) == len(PODS)
        await put_all(storage, dict.fromkeys(list(PODS)[:700], b"?"))
        revision = await storage.revision()
        census = await take_census(source)
        await source.close()
        assert census.revision == revision - 700
        assert (census.objects, census.unreadable) == (len(PODS), ())
        assert await storage.revision() == revision


@pytest.mark.parametrize("keys", [(1, 1, 1), (2, 3, 7), (7, 3, 1000), (100, 1000, 10_000)])
async def test_pages_of_etcd(
    etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch, keys: tuple[int, int, int]
) -> None:
    """Whatever their size, the pages of a store with many resources hold each key once."""
    for name, value in zip(
        ("KEYS_FIRST", "KEYS_MAX", "KEYS_WITHIN_RESOURCE_MAX"), keys, strict=True
    ):
        monkeypatch.setattr(etcd_reading, name, value)
    values = {
        f"/pages/{resource}/{number}": b"x" * number
        for resource in ("a", "a.b/c", "b", "b0", "c")
        for number in range(12)
    }
    values |= {"/pages/alone": b"1", "/pages/b": b"2", "/pages/z/1": b"3"}
    async with opened(etcd.url) as storage:
        await put_all(storage, values)
    assert await read_all(etcd.url, "/pages/") == values
    assert await read_all(etcd.url, "/pages/b/", "/pages/none/", "/pages/z/") == {
        key: value for key, value in values.items() if key.startswith(("/pages/b/", "/pages/z/"))
    }


async def test_etcd_that_compacts(etcd: EtcdCluster) -> None:
    """If etcd compacts the revision meanwhile, the error says so and what to do."""
    async with opened(etcd.url) as storage:
        await put_all(storage, {"/registry/pods/default/a": as_json("v1", "Pod")})
        source = await open_source(etcd.url, Runtime.system())
        await source.count(("/registry/",))
        await put_all(storage, {"/registry/pods/default/a": as_json("v1", "Pod", a=1)})
        await storage.compact(Revision(await storage.revision()))
        with pytest.raises(Unavailable, match="etcdctl snapshot save"):
            await take_census(source)
        await source.close()


async def test_census_of_sqlite(tmp_path: Path) -> None:
    """A census of a file counts what the file holds."""
    await fill(f"sqlite:{tmp_path / 'store.db'}", PODS)
    census = await count(f"sqlite:{tmp_path / 'store.db'}")
    assert [(each.resource, each.objects) for each in census.resources] == [("pods", 1500)]


async def test_etcd_user_with_read_permission_for_objects(tmp_path: Path) -> None:
    """A user of etcd with read permission for the prefix only can take a census."""
    with start_etcd(tmp_path / "etcd") as cluster:
        await fill(cluster.url, {"/registry/pods/default/a": as_json("v1", "Pod"), "/b": b"1"})
        cluster.etcdctl("role", "add", "reader")
        cluster.etcdctl("role", "grant-permission", "reader", "--prefix=true", "read", "/registry/")
        cluster.etcdctl("user", "add", "auditor:secret")
        cluster.etcdctl("user", "grant-role", "auditor", "reader")
        cluster.enable_auth(EtcdUser(name="admin", password="admin"))
        password = tmp_path / "password"
        password.write_text("secret\n")
        password.chmod(0o600)
        census = await count(f"{cluster.url}?user=auditor&password-file={password}")
        assert census.objects == 1
        with pytest.raises(OpenRefused, match="check etcd's user"):
            await read_all(f"{cluster.url}?user=auditor&password-file={password}", "/b")
        with pytest.raises(StorageError):
            await count(cluster.url)
