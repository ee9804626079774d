"""An etcd that was replaced or went back: every reply is compared with earlier ones."""

from types import SimpleNamespace

import pytest

from restow.aio import Runtime
from restow.storage.errors import Compacted, StoreReplaced
from restow.storage.etcd import open_etcd, parse_address
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.identity import accept
from restow.storage.interface import (
    EVERYTHING,
    Delete,
    Done,
    Key,
    Present,
    Put,
    Revision,
    Transaction,
    Unknown,
)
from tests.support.etcd_process import EtcdCluster
from tests.support.tcp_proxy import TcpProxy

PUT = Transaction((), (Put(Key("/restow/x"), b"1"),))


def header(revision: int, cluster_id: int = 7) -> SimpleNamespace:
    return SimpleNamespace(revision=revision, cluster_id=cluster_id)


async def make_connection() -> EtcdConnection:
    return EtcdConnection(parse_address("etcd://127.0.0.1:1"), Runtime.system())


async def test_a_revision_below_one_known_before_the_request() -> None:
    """It blocks the handle; a revision below a reply received meanwhile does not."""
    connection = await make_connection()
    connection.note(header(10), before=Revision(1))
    connection.note(header(9), before=Revision(8))
    connection.check_usable()
    with pytest.raises(StoreReplaced, match="is at revision 9, and revision 10 was seen before"):
        connection.note(header(9), before=Revision(10))
    with pytest.raises(StoreReplaced):  # and every later reply is rejected
        connection.note(header(11), before=Revision(10))
    assert connection.newest == 10
    await connection.close()


async def test_another_cluster_id() -> None:
    """It blocks the handle, however high the revision is."""
    connection = await make_connection()
    connection.note(header(10), before=Revision(1))
    with pytest.raises(StoreReplaced, match="cluster id 8, and 7 was expected"):
        connection.note(header(99, cluster_id=8), before=Revision(10))
    assert connection.newest == 10
    await connection.close()


async def test_a_blocked_storage_rejects_calls_and_resumes_when_unblocked(
    etcd: EtcdCluster,
) -> None:
    """No commit is acknowledged, no read succeeds, every watch ends; unblocking resumes all."""
    storage = await open_etcd(parse_address(etcd.url), Runtime.system())
    try:
        assert isinstance(await storage.commit(PUT), Done)
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        storage._connection.newest = Revision(10**9)  # simulate that it was seen before
        assert isinstance(await storage.commit(PUT), Unknown)
        with pytest.raises(StoreReplaced):
            await storage.commit(PUT)
        with pytest.raises(StoreReplaced):
            await storage.range(EVERYTHING)
        with pytest.raises(StoreReplaced):
            await storage.revision()
        with pytest.raises(StoreReplaced):
            await anext(watch)
        with pytest.raises(StoreReplaced):
            await anext(storage.watch(EVERYTHING, after=Revision(1)))
        seen = await storage.look()
        storage.unblock(seen)
        following = storage.watch(EVERYTHING, after=seen.revision)
        done = await storage.commit(PUT)
        assert isinstance(done, Done)
        assert (await anext(following)).revision == done.revision
        await following.close()
    finally:
        await storage.close()


async def test_an_open_watch_ends_with_compacted(etcd: EtcdCluster) -> None:
    """Even if the replacement itself was not detected."""
    storage = await open_etcd(parse_address(etcd.url), Runtime.system())
    try:
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        storage.unblock(await storage.look())
        with pytest.raises(Compacted):
            await anext(watch)
    finally:
        await storage.close()


async def test_a_revision_seen_only_by_a_watch(etcd: EtcdCluster) -> None:
    """Revisions from a watch count as well: a reply below one blocks."""
    storage = await open_etcd(parse_address(etcd.url), Runtime.system())
    other = await open_etcd(parse_address(etcd.url), Runtime.system())
    try:
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        done = await other.commit(PUT)
        assert isinstance(done, Done)
        assert (await anext(watch)).revision == done.revision
        assert storage.newest == done.revision
        await watch.close()
    finally:
        await storage.close()
        await other.close()


async def test_a_write_at_a_revision_that_was_seen_before() -> None:
    """The next write of a store has a new revision: one that repeats the newest is of a store that
    lost it. A transaction that changed nothing has the previous revision."""
    connection = await make_connection()
    connection.note(header(10), before=Revision(1))
    nothing = Transaction((), (Delete(Key("/restow/x")),))
    assert connection.note_commit(header(10), nothing, before=Revision(10)) == 10
    assert connection.note_commit(header(11), PUT, before=Revision(10)) == 11
    with pytest.raises(StoreReplaced, match="is at revision 11, and revision 11 was seen before"):
        connection.note_commit(header(11), PUT, before=Revision(11))
    await connection.close()
    connection = await make_connection()
    something = Transaction((Present(Key("/restow/x")),), nothing.writes)
    with pytest.raises(StoreReplaced):
        connection.note_commit(header(11), something, before=Revision(11))
    await connection.close()


async def test_another_identity_is_detected_by_the_next_consistent_read(etcd: EtcdCluster) -> None:
    """Whatever the revision is: an operator may have accepted another store, and other servers may
    have raised its revision, before the next request of this server."""
    storage = await open_etcd(parse_address(etcd.url), Runtime.system())
    other = await open_etcd(parse_address(etcd.url), Runtime.system())
    try:
        await accept(other, Runtime.system().ids)
        storage.unblock(await storage.look())
        assert await storage.revision()
        await accept(other, Runtime.system().ids)
        with pytest.raises(StoreReplaced, match="identity"):
            await storage.revision()
        assert storage.blocked is not None
        storage.unblock(await storage.look())
        assert await storage.revision()
    finally:
        await storage.close()
        await other.close()


async def test_a_reopened_watch_stream_checks_the_identity(
    etcd: EtcdCluster,
) -> None:
    """Before it delivers anything: it may be a stream of another store."""
    runtime = Runtime.system()
    other = await open_etcd(parse_address(etcd.url), runtime)
    async with TcpProxy(etcd.members[0].client_port, runtime) as proxy:
        storage = await open_etcd(parse_address(f"etcd://{proxy.address}"), runtime)
        try:
            await accept(other, runtime.ids)
            storage.unblock(await storage.look())
            watch = storage.watch(EVERYTHING, after=await storage.revision())
            assert isinstance(done := await other.commit(PUT), Done)
            assert (await anext(watch)).revision == done.revision
            proxy.refuses = True
            proxy.cut()
            await accept(other, runtime.ids)
            proxy.heal()
            with pytest.raises(StoreReplaced, match="identity"):
                await anext(watch)
        finally:
            await storage.close()
            await other.close()
