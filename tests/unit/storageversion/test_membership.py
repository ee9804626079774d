"""Membership when replies are lost: the store decides, and a removed key is never recreated."""

from __future__ import annotations

import asyncio

import pytest

from restow.aio import Runtime, SimulatedClock
from restow.storage.errors import Unavailable
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Item,
    Key,
    Outcome,
    Refused,
    Revision,
    Span,
    Transaction,
)
from restow.storageversion.identity import SERVERS_PREFIX, decode_record, server_key
from restow.storageversion.membership import JOIN_ATTEMPTS_MAX, Membership, MembershipOptions
from restow.storageversion.object_codec import LEASES_PREFIX, lease_key
from tests.scenarios.lossy import Fate, LossyStorage


def member(
    storage: LossyStorage, *, seed: int = 1, clock: SimulatedClock | None = None
) -> Membership:
    runtime = Runtime.simulated(seed, clock=clock or SimulatedClock())
    return Membership(storage, runtime, MembershipOptions(host="h"))


async def keys(storage: LossyStorage, prefix: str = SERVERS_PREFIX) -> list[str]:
    return [item.key for item in (await storage.range(Span.of_prefix(prefix))).items]


async def own_key(storage: LossyStorage, membership: Membership) -> Item | None:
    return await storage.get(server_key(membership.id))


async def test_record_and_lease_are_created_and_removed_together() -> None:
    """After joining both exist; after leaving neither does."""
    storage = LossyStorage()
    membership = member(storage)
    await membership.join()
    assert await keys(storage) == [server_key(membership.id)]
    assert await keys(storage, LEASES_PREFIX) == [lease_key(membership.id)]
    assert await membership.leave() is not None
    assert not membership.is_member
    assert await keys(storage) + await keys(storage, LEASES_PREFIX) == []


async def test_a_join_with_a_lost_reply_is_found_by_a_read() -> None:
    """It was carried out: the server keeps that ID, and creates no second record."""
    storage = LossyStorage()
    membership = member(storage)
    storage.fates = iter(["answer lost"])
    await membership.join()
    assert await keys(storage) == [server_key(membership.id)]
    assert await membership.renew()


async def test_a_lost_join_is_retried_under_another_id() -> None:
    """The lost one may still commit. It is not waited for, and is no incarnation of this server."""
    storage = LossyStorage()
    membership = member(storage)
    storage.fates = iter(["lost"])
    await membership.join()
    first = next(guard.key for guard in storage.late[0].guards)
    assert first != server_key(membership.id)
    assert isinstance(await storage.land(), Done)
    assert len(await keys(storage)) == 2
    assert await membership.renew()
    # removed by the garbage collector after its lease duration
    assert (await storage.get(first)) is not None


async def test_a_join_without_any_reply_fails() -> None:
    """Its retries are bounded, the error says so, and each retry has its own ID."""
    storage = LossyStorage()
    membership = member(storage)
    storage.fates = iter(["lost"] * 100)
    with pytest.raises(Unavailable, match="cannot tell whether"):
        await membership.join()
    assert not membership.is_member
    assert len({transaction.guards for transaction in storage.commits}) == JOIN_ATTEMPTS_MAX


@pytest.mark.parametrize("fate", ["answer lost", "lost"])
async def test_a_renewal_adopts_its_own_lost_write(fate: Fate) -> None:
    """Whether it was carried out or not, the next renewal starts from the stored record."""
    storage = LossyStorage()
    membership = member(storage)
    await membership.join()
    storage.fates = iter([fate])
    assert await membership.renew(settled=True)
    item = await own_key(storage, membership)
    assert item is not None
    assert membership.revision == item.revision
    record = decode_record(item.value)
    assert record is not None
    assert record.settled
    if fate == "lost":
        assert isinstance(await storage.land(), Refused)  # too late: the record has changed
    assert await membership.renew()


async def test_a_renewal_that_cannot_read_either_continues_after_the_refusal() -> None:
    """If reads fail too, the next refused guard returns the own write, which is adopted."""
    storage = LossyStorage()
    membership = member(storage)
    await membership.join()
    storage.fates, storage.reads_fail = iter(["answer lost"]), True
    assert await membership.renew()
    storage.reads_fail = False
    assert await membership.renew()


@pytest.mark.parametrize("fates", [[], ["lost"], ["lost", "lost"]])
async def test_a_removed_record_is_never_recreated(fates: list[Fate]) -> None:
    """The server detects that it is no member; no commit of a renewal could recreate the record."""
    storage = LossyStorage()
    membership = member(storage)
    await membership.join()
    gone = server_key(membership.id)
    await storage.commit(Transaction((), (Delete(gone),)))
    storage.commits.clear()
    storage.fates = iter(fates)
    assert not await membership.renew()
    assert not membership.is_member
    assert not await membership.renew()
    for transaction in storage.commits:
        assert not any(isinstance(guard, Absent) for guard in transaction.guards)
    while storage.late:
        assert isinstance(await storage.land(), Refused)
    assert await keys(storage) == []
    first = membership.id
    await membership.join()
    assert membership.id != first
    assert await keys(storage) == [server_key(membership.id)]


async def test_an_error_of_the_store_does_not_end_the_membership() -> None:
    """Unavailable is raised, and the server remains a member."""
    storage = LossyStorage()
    membership = member(storage)
    await membership.join()
    storage.fates = iter(["error"])
    with pytest.raises(Unavailable):
        await membership.renew()
    assert membership.is_member
    storage.fates = iter(["lost"] * 100)
    with pytest.raises(Unavailable, match="cannot tell whether"):
        await membership.renew()
    assert membership.is_member
    storage.fates, storage.reads_fail = iter(()), True
    with pytest.raises(Unavailable):
        await membership.check()
    assert membership.is_member
    storage.reads_fail = False
    assert await membership.renew()


@pytest.mark.parametrize("fate", ["answer lost", "lost", "done"])
async def test_a_server_leaves_despite_lost_replies(fate: Fate) -> None:
    """Nothing of it remains, and it is no member."""
    storage = LossyStorage()
    membership = member(storage)
    await membership.join()
    storage.fates = iter([fate])
    await membership.leave()
    assert not membership.is_member
    assert await keys(storage) + await keys(storage, LEASES_PREFIX) == []


async def test_the_age_counts_from_before_the_renewal_was_sent() -> None:
    """The age of the last renewal is never underestimated."""
    storage, clock = LossyStorage(), SimulatedClock()
    membership = member(storage, clock=clock)
    await membership.join()
    await clock.advance(7)
    assert membership.age_seconds == 7
    storage.fates = iter(["error"])
    with pytest.raises(Unavailable):
        await membership.renew()
    assert membership.age_seconds == 7
    assert await membership.renew()
    assert membership.age_seconds == 0


class SlowStorage(LossyStorage):
    """Delays its replies for one operation."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self.slow = slow
        """`get` or `commit`; empty: neither."""
        self.answered = asyncio.Event()

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        is_slow, found = self.slow == "get", await super().get(key, revision=revision)
        if is_slow:
            await self.answered.wait()
        return found

    async def commit(self, transaction: Transaction) -> Outcome:
        is_slow, outcome = self.slow == "commit", await super().commit(transaction)
        if is_slow:
            await self.answered.wait()
        return outcome


@pytest.mark.parametrize("slow", ["get", "commit"])
@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_late_reply_of_an_earlier_incarnation_does_not_end_the_new_one(
    slow: str, is_gone: bool
) -> None:
    """The reply to a check or renewal of the old record is ignored: otherwise the server would join
    once
    more, and leave a record that is not renewed. (It once did.)"""
    storage = SlowStorage("")
    membership = member(storage)
    await membership.join()
    if is_gone:
        await storage.commit(Transaction((), (Delete(server_key(membership.id)),)))
    storage.slow = slow
    request = membership.check() if slow == "get" else membership.renew()
    requesting = asyncio.ensure_future(request)
    await asyncio.sleep(0)
    storage.slow = ""
    await membership.join()
    new, revision = membership.id, membership.revision
    storage.answered.set()
    assert await requesting
    assert (membership.id, membership.revision) == (new, revision)
    assert await membership.renew()
