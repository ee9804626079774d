"""An etcd that is another one, or went back: every answer is compared with those of before."""

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


async def test_a_revision_below_one_that_was_known_when_it_was_asked_for() -> None:
    """It blocks; one below an answer that came meanwhile does not."""
    connection = await make_connection()
    connection.note(header(10), before=Revision(1))
    connection.note(header(9), before=Revision(8))
    connection.check_usable()
    with pytest.raises(StoreReplaced, match="is at revision 9, and revision 10 was seen before"):
        connection.note(header(9), before=Revision(10))
    with pytest.raises(StoreReplaced):  # nothing is taken from it later either
        connection.note(header(11), before=Revision(10))
    assert connection.newest == 10
    await connection.close()


async def test_another_cluster_id() -> None:
    """It blocks, be its revision as high as it may."""
    connection = await make_connection()
    connection.note(header(10), before=Revision(1))
    with pytest.raises(StoreReplaced, match="cluster id 8, and 7 was expected"):
        connection.note(header(99, cluster_id=8), before=Revision(10))
    assert connection.newest == 10
    await connection.close()


async def test_a_blocked_storage_answers_nothing_and_goes_on_where_it_is_told(
    etcd: EtcdCluster,
) -> None:
    """No commit is acknowledged, no read answered, every watch ends; then all begin again."""
    storage = await open_etcd(parse_address(etcd.url), Runtime.system())
    try:
        assert isinstance(await storage.commit(PUT), Done)
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        storage._connection.newest = Revision(10**9)  # as if it had been seen there
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


async def test_a_watch_that_was_open_is_told_to_read_again(etcd: EtcdCluster) -> None:
    """Also where nothing had noticed that the store was another one."""
    storage = await open_etcd(parse_address(etcd.url), Runtime.system())
    try:
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        storage.unblock(await storage.look())
        with pytest.raises(Compacted):
            await anext(watch)
    finally:
        await storage.close()


async def test_a_revision_that_only_a_watch_has_shown(etcd: EtcdCluster) -> None:
    """A server that writes nothing knows it as well: an answer below it blocks."""
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
    lost it. A transaction that changed nothing has the revision of before."""
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


async def test_another_identity_is_noticed_by_the_next_consistent_read(etcd: EtcdCluster) -> None:
    """Whatever the revision is: an operator may have accepted another store, and other servers may
    have raised its revision, before this server asks anything."""
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


async def test_a_watch_stream_that_is_opened_again_asks_for_the_identity(
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
