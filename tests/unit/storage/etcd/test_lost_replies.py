"""Commits whose request or reply is lost, by a proxy between the driver and etcd."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from restow.aio import Runtime
from restow.storage.etcd import EtcdStorage
from restow.storage.interface import (
    Absent,
    Batch,
    Delete,
    Done,
    Item,
    Key,
    Outcome,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Transaction,
    Unknown,
    ValueIs,
)
from tests.support.etcd_process import EtcdCluster
from tests.support.tcp_proxy import TcpProxy
from tests.unit.storage.etcd.conftest import Opener
from tests.unit.storage.etcd.waits import until


class Setting:
    """A store behind a proxy, and a direct handle on the same store, like another client's."""

    def __init__(self, proxy: TcpProxy, behind: EtcdStorage, direct: EtcdStorage) -> None:
        self.proxy = proxy
        self.behind = behind
        self.direct = direct

    async def get(self, key: Key) -> Item:
        item = await self.direct.get(key)
        assert item is not None
        return item

    async def put(self, key: Key, value: bytes) -> Revision:
        outcome = await self.direct.commit(Transaction(writes=(Put(key, value),)))
        assert isinstance(outcome, Done)
        return outcome.revision

    async def commit_losing_reply(self, transaction: Transaction) -> asyncio.Task[Outcome]:
        """Send it, wait until it is applied, but drop the reply."""
        before = await self.direct.revision()
        self.proxy.drops_replies = True
        task = asyncio.create_task(self.behind.commit(transaction))

        async def has_happened() -> bool:
            return await self.direct.revision() > before

        await until(has_happened)
        return task

    async def commit_losing_request(self, transaction: Transaction) -> asyncio.Task[Outcome]:
        """Send it, but drop the request."""
        self.proxy.drops_requests = True
        dropped = self.proxy.dropped_bytes
        task = asyncio.create_task(self.behind.commit(transaction))

        async def was_sent() -> bool:
            return self.proxy.dropped_bytes > dropped

        await until(was_sent)
        return task

    def reconnect(self) -> None:
        self.proxy.cut()
        self.proxy.heal()

    async def history(self, key: Key, after: Revision) -> list[bytes | None]:
        """All values that the key has had after a revision."""
        watch = self.direct.watch(Span.of_key(key), after=after)
        watch.expect(await self.direct.revision())
        batch: Batch = await anext(watch)
        await watch.close()
        return [event.value for event in batch.events]


@pytest.fixture
async def setting(etcd: EtcdCluster, runtime: Runtime, opened: Opener) -> AsyncIterator[Setting]:
    port = etcd.members[0].client_port
    async with (
        TcpProxy(port, runtime) as proxy,
        opened(proxy.address) as behind,
        opened(etcd.endpoints[0]) as direct,
    ):
        yield Setting(proxy, behind, direct)


async def test_a_create_with_a_lost_reply_is_done(setting: Setting) -> None:
    """The outcome is Done with the revision at which it was applied, not "exists already"."""
    key = Key("/lost/create")
    task = await setting.commit_losing_reply(Transaction((Absent(key),), (Put(key, b"1"),)))
    setting.reconnect()
    assert await task == Done((await setting.get(key)).revision)
    assert await setting.history(key, Revision(1)) == [b"1"]


async def test_an_update_with_a_lost_reply_is_done(setting: Setting) -> None:
    """The same for a change of a key, with two guards and two writes."""
    key, other = Key("/lost/update"), Key("/restow/lost/update")
    first = await setting.put(key, b"1")
    transaction = Transaction(
        (RevisionIs(key, first), Absent(other)), (Put(key, b"2"), Put(other, b"2"))
    )
    task = await setting.commit_losing_reply(transaction)
    setting.reconnect()
    assert await task == Done((await setting.get(key)).revision)
    assert await setting.history(key, Revision(1)) == [b"1", b"2"]


async def test_an_applied_write_is_found_after_an_overwrite(setting: Setting) -> None:
    """It was applied, though the value was replaced before the driver reads."""
    key = Key("/lost/overwritten")
    task = await setting.commit_losing_reply(Transaction((Absent(key),), (Put(key, b"mine"),)))
    own = (await setting.get(key)).revision
    await setting.put(key, b"theirs")
    setting.reconnect()
    assert await task == Done(own)
    assert await setting.history(key, Revision(1)) == [b"mine", b"theirs"]


async def test_a_retried_create_does_not_restore_a_deleted_object(setting: Setting) -> None:
    """A retried create must not bring back an object that another client has deleted since."""
    key = Key("/lost/deleted")
    task = await setting.commit_losing_reply(Transaction((Absent(key),), (Put(key, b"mine"),)))
    own = (await setting.get(key)).revision
    await setting.direct.commit(Transaction(writes=(Delete(key),)))
    setting.reconnect()
    assert await task == Done(own)
    assert await setting.direct.get(key) is None


async def test_a_lost_request_is_sent_again(setting: Setting) -> None:
    """A lost request is applied once, and only sent again after reading."""
    key = Key("/lost/request")
    task = await setting.commit_losing_request(Transaction((Absent(key),), (Put(key, b"1"),)))
    assert await setting.direct.get(key) is None
    setting.reconnect()
    assert await task == Done((await setting.get(key)).revision)
    assert await setting.history(key, Revision(1)) == [b"1"]


async def test_a_lost_request_is_refused_if_another_client_was_faster(setting: Setting) -> None:
    """A guard that fails on the retry is returned with the other's value, never as Done."""
    key = Key("/lost/race")
    task = await setting.commit_losing_request(Transaction((Absent(key),), (Put(key, b"mine"),)))
    theirs = await setting.put(key, b"theirs")
    setting.reconnect()
    outcome = await task
    assert isinstance(outcome, Refused)
    assert outcome.guard == Absent(key)
    assert outcome.current == Item(key, b"theirs", theirs, theirs)


async def test_a_lost_deletion_is_unknown_if_another_client_may_have_deleted(
    setting: Setting,
) -> None:
    """A deletion leaves no mark of its own, so its outcome is Unknown."""
    key = Key("/lost/delete")
    first = await setting.put(key, b"1")
    task = await setting.commit_losing_reply(Transaction((RevisionIs(key, first),), (Delete(key),)))
    setting.reconnect()
    assert isinstance(await task, Unknown)


async def test_a_deletion_that_never_arrived_is_sent_again(setting: Setting) -> None:
    """If the key was not deleted, the lost deletion was not applied."""
    key = Key("/lost/delete-request")
    first = await setting.put(key, b"1")
    transaction = Transaction((RevisionIs(key, first),), (Delete(key),))
    task = await setting.commit_losing_request(transaction)
    setting.reconnect()
    assert isinstance(await task, Done)
    assert await setting.direct.get(key) is None


async def test_a_request_that_arrives_late_has_no_effect(setting: Setting) -> None:
    """A request that the network delays beyond the driver's timeout cannot be applied any more.

    This is the hard case: no guard of the transaction itself would stop it.
    """
    key, fence = Key("/lost/late"), Key("/restow/lost/fence")
    await setting.put(fence, b"v1")
    setting.proxy.holds_requests = True
    transaction = Transaction((ValueIs(fence, b"v1"),), (Put(key, b"first"),))
    task = asyncio.create_task(setting.behind.commit(transaction))

    async def is_held() -> bool:
        return bool(setting.proxy.held)

    await until(is_held)
    setting.reconnect()
    assert isinstance(await task, Done)
    await setting.put(key, b"second")
    await setting.proxy.release()
    await asyncio.sleep(0.2)
    assert await setting.history(key, Revision(1)) == [b"first", b"second"]


async def test_many_lost_replies_at_once_are_all_resolved(setting: Setting) -> None:
    """Commits in flight together are each resolved, with a single end of the session."""
    keys = [Key(f"/lost/many/{number}") for number in range(32)]
    before = await setting.direct.revision()
    setting.proxy.drops_replies = True
    tasks = [
        asyncio.create_task(setting.behind.commit(Transaction((Absent(key),), (Put(key, b"1"),))))
        for key in keys
    ]

    async def have_happened() -> bool:
        return await setting.direct.revision() >= before + len(keys)

    await until(have_happened)
    setting.reconnect()
    for key, outcome in zip(keys, await asyncio.gather(*tasks), strict=True):
        assert outcome == Done((await setting.get(key)).revision)
    assert await setting.direct.revision() == before + len(keys) + 1


async def test_without_a_connection_the_outcome_is_unknown(
    etcd: EtcdCluster, runtime: Runtime, opened: Opener
) -> None:
    """If etcd cannot be reached to resolve it, the outcome is Unknown within the deadline."""
    key = Key("/lost/for-good")
    async with (
        TcpProxy(etcd.members[0].client_port, runtime) as proxy,
        opened(proxy.address, request_timeout_seconds=0.5, resolve_timeout_seconds=0.5) as behind,
    ):
        proxy.drops_replies = True
        task = asyncio.create_task(behind.commit(Transaction(writes=(Put(key, b"1"),))))
        async with asyncio.timeout(10):
            assert isinstance(await task, Unknown)
        proxy.heal()
        proxy.cut()


async def test_a_cancelled_caller_is_just_cancelled(setting: Setting) -> None:
    """Cancelling a commit ends it at once, and the store stays usable."""
    setting.proxy.drops_replies = True
    task = asyncio.create_task(
        setting.behind.commit(Transaction(writes=(Put(Key("/lost/cancelled"), b"1"),)))
    )
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    setting.reconnect()
    assert await setting.behind.revision() >= 1


async def test_a_session_key_that_someone_removed_is_replaced(setting: Setting) -> None:
    """Wiping etcd, including sessions, does not lock the driver out."""
    key = Key("/lost/wiped")
    task = await setting.commit_losing_request(Transaction(writes=(Put(key, b"1"),)))
    setting.reconnect()
    assert isinstance(await task, Done)
    session_key, revision = setting.behind._committer._session.guard
    assert revision > 0
    await setting.direct.commit(Transaction(writes=(Delete(Key(session_key.decode())),)))
    outcome = await setting.behind.commit(Transaction(writes=(Put(key, b"2"),)))
    assert isinstance(outcome, Done)
    assert (await setting.get(key)).value == b"2"
