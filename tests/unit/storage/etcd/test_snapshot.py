"""Reading snapshots of a real etcd, and files that are not snapshots."""

import shutil
from pathlib import Path

import pytest

from restow.storage.errors import OpenRefused, StorageError, StoreDamaged, Unavailable
from restow.storage.etcd.bolt_file import BoltFile
from restow.storage.etcd.snapshot_file import HASH_BYTES, EtcdSnapshot
from restow.storage.interface import EVERYTHING
from tests.support.etcd_process import EtcdCluster, start_etcd
from tests.unit.census.stores import as_json, count, delete_all, opened, put_all, read_all

OBJECTS = 3000
CHUNK_BYTES = 4096


@pytest.fixture(scope="module")
def filled(etcd: EtcdCluster) -> EtcdCluster:
    """An etcd whose tree has several levels, with overwritten, compacted, deleted and large
    values."""
    import uvloop

    uvloop.run(_fill(etcd.url))
    return etcd


async def _fill(address: str) -> None:
    pods = {
        f"/registry/pods/default/{number:05}": as_json("v1", "Pod", spec="old" * 20)
        for number in range(OBJECTS)
    }
    async with opened(address) as storage:
        await put_all(storage, pods)
        await put_all(storage, {key: as_json("v1", "Pod", a=key) for key in list(pods)[::3]})
        await storage.compact(await storage.revision())
        await put_all(storage, {key: as_json("v1", "Pod", b=key) for key in list(pods)[::5]})
        await delete_all(storage, list(pods)[1:400:2])
        await put_all(storage, {list(pods)[1]: as_json("v2", "Pod")})
        large = as_json("v1", "Secret", data="x" * 300_000)
        await put_all(storage, {"/registry/secrets/default/large": large, "/other/key": b"1"})
        await put_all(storage, {"/registry/secrets/default/empty": b""})


@pytest.fixture(scope="module")
def saved(filled: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshot") / "backup.db"
    filled.etcdctl("snapshot", "save", str(path))
    return path


async def test_same_keys_as_etcd(filled: EtcdCluster, saved: Path) -> None:
    """The file yields exactly the keys, values and revision of etcd itself."""
    async with opened(filled.url) as storage:
        page = await storage.range(EVERYTHING)
    expected = {item.key: item.value for item in page.items}
    assert len(expected) == OBJECTS - 200 + 1 + 3
    assert await read_all(f"snapshot:{saved}", "") == expected
    snapshot = EtcdSnapshot(saved)
    assert snapshot.revision == page.revision
    snapshot.close()


async def test_the_tree_has_levels(saved: Path) -> None:
    """The file is large enough for the test: its tree has branches and overflow pages."""
    with BoltFile(saved) as file:
        found = file._find_bucket(b"key")
        assert found is not None
        leaves = list(file._leaves_backwards(found[0]))
        assert len(leaves) > 100
        assert max(len(page.data) for page in leaves) > 300_000


async def test_prefixes(saved: Path) -> None:
    """Only keys under one of the prefixes are yielded."""
    found = await read_all(f"snapshot:{saved}", "/registry/secrets/", "/other/")
    assert sorted(found) == [
        "/other/key",
        "/registry/secrets/default/empty",
        "/registry/secrets/default/large",
    ]


async def test_census(filled: EtcdCluster, saved: Path) -> None:
    """A census of the snapshot and one of the running etcd agree."""
    census = await count(f"snapshot:{saved}")
    assert census == await count(filled.url)
    assert [(each.resource, each.objects) for each in census.resources] == [
        ("pods", OBJECTS - 200 + 1),
        ("secrets", 2),
    ]


async def test_database_of_a_stopped_member(tmp_path: Path) -> None:
    """The database of a stopped member is read the same way, without a hash."""
    with start_etcd(tmp_path / "etcd") as cluster:
        async with opened(cluster.url) as storage:
            await put_all(storage, {"/registry/pods/a/b": as_json("v1", "Pod")})
        cluster.members[0].stop()
        (path,) = (tmp_path / "etcd").rglob("snap/db")
        assert path.stat().st_size % 512 == 0
        assert list(await read_all(f"snapshot:{path}")) == ["/registry/pods/a/b"]


async def test_new_etcd(tmp_path: Path) -> None:
    """A snapshot of an etcd without any writes is empty, at the first revision."""
    with start_etcd(tmp_path / "etcd") as cluster:
        cluster.etcdctl("snapshot", "save", str(tmp_path / "backup.db"))
    assert await read_all(f"snapshot:{tmp_path / 'backup.db'}", "") == {}


def read(path: Path) -> int:
    snapshot = EtcdSnapshot(path)
    try:
        return sum(1 for _ in snapshot.entries(("/",)))
    finally:
        snapshot.close()


def test_cut_off_with_its_hash(saved: Path, tmp_path: Path) -> None:
    """A truncated copy does not match its hash, or is detected as truncated."""
    data = saved.read_bytes()
    for size in (len(data) - 512, len(data) // 2 // 512 * 512, len(data) // 2 // 512 * 512 + 32):
        path = tmp_path / "cut.db"
        path.write_bytes(data[:size])
        with pytest.raises(StoreDamaged, match="damaged"):
            read(path)


def test_changed_byte(saved: Path, tmp_path: Path) -> None:
    """One changed byte anywhere is detected by the hash."""
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 1
    path = tmp_path / "changed.db"
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match="SHA-256"):
        read(path)


def test_damage_without_a_hash(saved: Path, tmp_path: Path) -> None:
    """Wiped or shuffled pages give a storage error or a count, never another exception."""
    data = saved.read_bytes()[:-HASH_BYTES]
    path = tmp_path / "damaged.db"
    refused = 0
    for seed in range(40):
        damaged = bytearray(data)
        for step in range(20):
            place = (seed * 7919 + step * 104_729) * CHUNK_BYTES % (len(data) - CHUNK_BYTES)
            other = (seed * 31 + step * 17) * CHUNK_BYTES % (len(data) - CHUNK_BYTES)
            width = 16 if seed % 2 else CHUNK_BYTES
            damaged[place : place + width] = damaged[other : other + width]
        path.write_bytes(damaged)
        try:
            read(path)
        except StorageError:
            refused += 1
    assert refused > 30


def test_cycle(saved: Path, tmp_path: Path) -> None:
    """Branch pages with a cycle end with an error, not with an endless loop."""
    with BoltFile(saved) as file:
        found = file._find_bucket(b"key")
        assert found is not None
        root, page_bytes = found[0], file.meta.page_bytes
    data = bytearray(saved.read_bytes()[:-HASH_BYTES])
    # The first of the root's entries begins after the header; its last eight bytes are a page.
    data[root * page_bytes + 24 : root * page_bytes + 32] = root.to_bytes(8, "little")
    path = tmp_path / "circle.db"
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match="circle"):
        read(path)


def test_the_other_meta(saved: Path, tmp_path: Path) -> None:
    """With one damaged meta page a file is still read; with both it is refused."""
    data = bytearray(saved.read_bytes()[:-HASH_BYTES])
    with BoltFile(saved) as file:
        page_bytes = file.meta.page_bytes
    path = tmp_path / "meta.db"
    data[:64] = bytes(64)
    path.write_bytes(data)
    with BoltFile(path) as file:
        assert file.meta.page_bytes == page_bytes
    data[page_bytes : page_bytes + 64] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(OpenRefused, match="not an etcd snapshot"):
        read(path)


def test_file_that_is_being_written(saved: Path, tmp_path: Path) -> None:
    """A database that changes while it is read, as under a running etcd, is refused."""
    path = tmp_path / "live.db"
    shutil.copy(saved, path)
    snapshot = EtcdSnapshot(path)
    entries = snapshot.entries(("/",))
    next(entries)
    with path.open("r+b") as file:
        file.write(bytes(64))
        file.seek(snapshot._file.meta.page_bytes)
        file.write(bytes(64))
    with pytest.raises(Unavailable, match="is being written"):
        list(entries)
    snapshot.close()


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 100_000, bytes(8192), b'{"kind":"Pod"}'])
async def test_not_a_snapshot(tmp_path: Path, content: bytes) -> None:
    """Another kind of file is refused with a clear message."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(OpenRefused, match="is not an etcd snapshot"):
        await read_all(f"snapshot:{path}")
