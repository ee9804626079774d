"""The rewrite of stored objects into the agreed version, and every guard of it by a mutant."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.coordination import rewrite, rewrite_page
from restow.coordination.raw_scan import stored_versions
from restow.coordination.records import EpochRecord, encode_epoch, encoder_key, epoch_key
from restow.coordination.rewrite import Rewriter
from restow.coordination.rewrite_others import ALONE_SECONDS, Others
from restow.coordination.rewrite_page import (
    BESIDE_OTHERS_MAX,
    BESIDE_OTHERS_MIN,
    IN_FLIGHT_FIRST,
    IN_FLIGHT_MAX,
    IN_FLIGHT_MIN,
    REST_SECONDS_MAX,
    Pace,
    Page,
    PageWork,
)
from restow.coordination.rewrite_plan import Aborted, RewritePlan
from restow.machinery.status import TooManyRequests
from restow.machinery.status_error import StatusError
from restow.resources.caches import Caches
from restow.resources.catalog import builtin_catalog
from restow.resources.encoding import FixedPolicy
from restow.resources.store import DeleteWish, ResourceStore
from restow.resources.stored import encode
from restow.runtime import Runtime
from restow.storage import interface
from restow.storage.interface import (
    Delete,
    Done,
    Event,
    Guard,
    Item,
    Key,
    Outcome,
    Put,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    Unknown,
    ValueIs,
)
from restow.storage.memory import MemoryStorage
from restow.testing.coordination_audit import PromiseBroken
from tests.unit.coordination.world import GROUP, Line, Server, World, open_world

V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
ROOT = f"/registry/{GROUP}/widgets/"
NAME = f"{GROUP}.widgets"
SEEDS = range(6)

Hook = Callable[[Transaction], Awaitable[None]]


class Meddling(Line):
    """A server's way to the store on which a test may meddle with rewrites."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.before: Hook | None = None
        """Called before each commit to the objects."""
        self.drop: type[Guard] | None = None
        """Guards that a mutant leaves out."""
        self.lose: str = ""
        """Whether the replies of commits are lost, `before` or `after` they happen."""
        self.chance: random.Random | None = None
        self.trace: list[str] = []

    async def get(self, key: Key, *, revision: Revision | None = None) -> Item | None:
        self.trace.append(f"get {key}")
        return await super().get(key, revision=revision)

    async def range(
        self,
        span: Span,
        *,
        limit: int = 0,
        revision: Revision | None = None,
        with_total: bool = False,
    ) -> interface.Page:
        self.trace.append(f"range {span.start} at {revision}")
        await self._linger()
        found = await super().range(span, limit=limit, revision=revision, with_total=with_total)
        await self._linger()
        return found

    async def commit(self, transaction: Transaction) -> Outcome:
        if not transaction.writes[0].key.startswith(ROOT):
            return await super().commit(transaction)
        self.trace.append(f"commit {transaction.writes[0].key}")
        if self.before is not None:
            await self.before(transaction)
        await self._linger()
        if self.drop is not None:
            kept = tuple(g for g in transaction.guards if not isinstance(g, self.drop))
            transaction = Transaction(kept, transaction.writes)
        if self.lose == "before":
            self.lose = ""
            return Unknown("lost")
        outcome = await super().commit(transaction)
        if self.lose == "after":
            self.lose = ""
            return Unknown("lost")
        await self._linger()
        return outcome

    async def _linger(self) -> None:
        for _ in range(self.chance.randrange(30) if self.chance is not None else 0):
            await asyncio.sleep(0)


class Rewriting:
    """A server that rewrites, in a world with whatever else."""

    def __init__(self, world: World, server: Server) -> None:
        self.world = world
        self.server = server
        self.resource = server.resource()
        self.line = Meddling(world.storage)
        policy = server.coordinator.policy
        self.store = ResourceStore(self.line, server.caches, policy, server.runtime)
        self.rewriter = Rewriter(self.store, policy, world.clock)

    async def page(self, **wishes: Any) -> Page:
        wishes = {"target_version": V2, **wishes}
        found: Page = await self.world.run(self.rewriter.rewrite_page(self.resource, **wishes))
        return found

    async def whole(self, **wishes: Any) -> list[Page]:
        """A complete pass."""
        pages = [await self.page(**wishes)]
        while pages[-1].next_key is not None:
            pages.append(await self.page(start_key=pages[-1].next_key, **wishes))
        return pages

    async def versions(self) -> dict[str, int]:
        return dict(await stored_versions(self.world.storage, ROOT))


async def put_raw(world: World, key: str, value: bytes) -> Revision:
    """As somebody does who knows nothing of us: past the fence, and past the audit."""
    outcome = await MemoryStorage.commit(world.storage, Transaction(writes=(Put(Key(key), value),)))
    assert isinstance(outcome, Done)
    return outcome.revision


def widget(name: str, version: str = V1, **fields: Any) -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1}
    return encode({"metadata": metadata, **fields}, version, "Widget")


def key_of(name: str) -> str:
    return f"{ROOT}ns/{name}"


async def fill(world: World, count: int, version: str = V1) -> None:
    for number in range(count):
        name = f"w{number:03d}"
        await put_raw(world, key_of(name), widget(name, version, spec={"count": 0}))


@asynccontextmanager
async def rewriting(directory: Path, **options: Any) -> AsyncIterator[Rewriting]:
    """A server of the newer release, alone: all agree on v2."""
    async with open_world(directory, seed=options.pop("seed", 1)) as world:
        yield Rewriting(world, await world.started("x+2", **options))


async def history(storage: Storage) -> list[Event]:
    """All changes of the objects."""
    revision = await storage.revision()
    watch = storage.watch(Span.of_prefix(ROOT), after=Revision(1))
    watch.expect(revision)
    events: list[Event] = []
    async for batch in watch:
        events += batch.events
        if batch.revision >= revision:
            break
    await watch.close()
    return events


# What a pass does.


@pytest.mark.parametrize("mode", ["report", "strict", "loose"])
async def test_a_pass_leaves_nothing_in_another_version(tmp_path: Path, mode: str) -> None:
    """What is left behind is rewritten, what is right is left alone; a second pass is the proof."""
    async with rewriting(tmp_path, mode=mode) as it:
        it.world.storage.is_fenced = mode != "loose"
        await fill(it.world, 40)
        for number in range(7):
            await put_raw(it.world, key_of(f"new{number}"), widget(f"new{number}", V2))
        before = await it.world.storage.revision()
        page = await it.page()
        assert (page.scanned, page.rewritten, page.skipped, page.settled) == (47, 40, 7, 0)
        assert (page.next_key, page.failed) == (None, [])
        assert (page.revision, page.epoch) == (before, (await it.world.epoch()).epoch)
        assert page.report_uid
        assert await it.versions() == {V2: 47}
        assert await it.world.storage.revision() == before + 40  # one revision each
        again = await it.page()
        assert (again.scanned, again.rewritten, again.skipped) == (47, 0, 47)
        assert await it.world.storage.revision() == before + 40


async def test_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, by bytes, by time: every object is visited once, and someone else can go on."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 30)
        pages = await it.whole(limit=7)
        assert [page.scanned for page in pages] == [7, 7, 7, 7, 2]
        assert await it.versions() == {V2: 30}
        await fill(it.world, 30)
        monkeypatch.setattr(rewrite_page, "READ_ITEMS_FIRST", 4)
        assert [page.scanned for page in await it.whole(bytes_max=100)] == [4] * 7 + [2]
        assert await it.versions() == {V2: 30}
        await fill(it.world, 30)
        monkeypatch.setattr(rewrite, "SECONDS_MAX", 0.0)
        first = await it.page()
        assert (first.scanned, first.next_key) == (1, key_of("w001"))
        other = Rewriting(it.world, await it.world.started("x+2"))  # the first has crashed
        while first.next_key is not None:
            first = await other.page(start_key=first.next_key, epoch=first.epoch)
        assert await it.versions() == {V2: 30}


async def test_large_values_are_read_in_small_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many are read at once depends on how long they are."""
    async with rewriting(tmp_path) as it:
        monkeypatch.setattr(rewrite_page, "READ_ITEMS_FIRST", 2)
        monkeypatch.setattr(rewrite_page, "READ_BYTES", 300)
        await fill(it.world, 12)
        assert (await it.page()).scanned == 12
        reads = [step for step in it.line.trace if step.startswith(f"range {ROOT}")]
        assert 4 <= len(reads) <= 12
        assert all(step.endswith("at None") for step in reads)  # each as it is then


async def test_nothing_but_the_version_changes(tmp_path: Path) -> None:
    """Managed fields, unknown fields, marks of deletion, even how a number is written."""
    rest = (
        b'"name":"a","namespace":"ns","uid":"u","generation":7,"finalizers":["example.com/hold"],'
        b'"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0,'
        b'"managedFields":[{"manager":"m","apiVersion":"example.com/v1","fieldsV1":{"f:a":{}}}]},'
        b'"spec":{"n":1.10,"big":123456789012345678901234567890,"e":1e2,"null":null},'
        b'"x-unknown":{"apiVersion":"example.com/v1","kind":"K"}}\n'
    )
    head = b'{"kind":"Widget","apiVersion":"example.com/v%d","metadata":{'
    async with rewriting(tmp_path) as it:
        created = await put_raw(it.world, key_of("a"), head % 1 + rest)
        page = await it.page()
        assert page.rewritten == 1
        item = await it.world.storage.get(Key(key_of("a")))
        assert item is not None
        assert item.value == head % 2 + rest
        assert item.created == created
        [_, event] = await history(it.world.storage)
        assert event.previous is not None  # so that watchers see a change, not a new object


async def test_values_of_others_are_rewritten_in_our_order(tmp_path: Path) -> None:
    """Fields in another order, said twice, or with a resource version: read as clients see them."""
    values = {
        "order": b'{"metadata":{"name":"order"},"spec":1,"apiVersion":"example.com/v1",'
        b'"kind":"Widget"}',
        "twice": b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"twice"},'
        b'"spec":1,"apiVersion":"example.com/v1","apiVersion":"example.com/v1"}',
        "version": b'{"kind":"Widget","apiVersion":"example.com/v1",'
        b'"metadata":{"name":"version","resourceVersion":"3"},"spec":1}',
    }
    async with rewriting(tmp_path) as it:
        for name, value in values.items():
            await put_raw(it.world, key_of(name), value)
        assert (await it.page()).rewritten == 3
        for name in values:
            item = await it.world.storage.get(Key(key_of(name)))
            assert item is not None
            found = orjson.loads(item.value)
            assert found["apiVersion"] == V2
            assert (found["metadata"], found["spec"]) == ({"name": name}, 1)


async def test_a_conversion_that_changes_shape() -> None:
    """A built-in kind goes through its converter, and clients see the same object as before."""
    storage, runtime, catalog = MemoryStorage(), Runtime.simulated(1), builtin_catalog()
    resource = catalog.of_kind("autoscaling", "HorizontalPodAutoscaler")
    assert resource is not None
    caches = Caches(storage, runtime)
    await caches.start()
    store = ResourceStore(storage, caches, FixedPolicy(), runtime)
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 80,
    }
    old = encode(
        {"metadata": {"name": "h", "namespace": "ns", "uid": "u"}, "spec": spec},
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
    )
    key = resource.key_of("ns/h")
    await storage.commit(Transaction(writes=(Put(key, old),)))

    async def seen(version: str) -> Any:
        entry = (await store.read(resource)).get("ns/h")
        assert entry is not None
        obj = store.object_of(resource, entry, version)
        del obj["metadata"]["resourceVersion"]
        return obj

    before = [await seen("autoscaling/v1"), await seen("autoscaling/v2")]
    rewriter = Rewriter(store, FixedPolicy(), runtime.clock)
    page = await rewriter.rewrite_page(resource, target_version=rewriter.target(resource))
    assert (page.rewritten, page.failed) == (1, [])
    assert (page.epoch, page.report_uid) == (0, "")  # nobody has ever agreed on anything
    assert await stored_versions(storage, resource.root) == {"autoscaling/v2": 1}
    assert [await seen("autoscaling/v1"), await seen("autoscaling/v2")] == before
    await caches.close()
    await storage.close()


async def test_the_number_of_commits_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is bounded, and falls while commits take long."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 200)
        under_way = most = 0
        commit = ResourceStore.rewrite

        async def count(store: ResourceStore, plan: RewritePlan) -> Any:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await it.world.clock.sleep(0.001 if it.line.lose == "" else 1)
            under_way -= 1
            return await commit(store, plan)

        monkeypatch.setattr(ResourceStore, "rewrite", count)
        assert (await it.page()).rewritten == 200
        assert most == IN_FLIGHT_MAX
        await fill(it.world, 200)
        it.line.lose, most = "never", 0
        page = await it.page()  # it takes seconds, and may be cut short
        assert most == IN_FLIGHT_FIRST
        assert page.rewritten >= 100
        assert await it.versions() == {V1: 200 - page.rewritten, V2: page.rewritten}
    is_alone = True
    pace = Pace(lambda: is_alone)
    for _ in range(1000):
        assert pace.note(1.0) == 0
    assert pace.in_flight == IN_FLIGHT_MIN
    for _ in range(1000):
        assert pace.note(0.001) == 0
    assert pace.in_flight == IN_FLIGHT_MAX
    is_alone = False
    assert pace.in_flight == BESIDE_OTHERS_MIN
    assert (pace.note(0.001), pace.note(60)) == (0.001, REST_SECONDS_MAX)
    for _ in range(1000):
        pace.note_late(0.0)
    assert pace.in_flight == BESIDE_OTHERS_MAX
    for _ in range(1000):
        pace.note_late(1.0)
    assert pace.in_flight == BESIDE_OTHERS_MIN
    is_alone = True
    assert pace.in_flight > BESIDE_OTHERS_MAX


async def test_beside_others_it_goes_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the server is asked for other things, few commits are under way, and all are done."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 200)
        under_way, most = 0, {True: 0, False: 0}
        commit, others, requests = ResourceStore.rewrite, it.rewriter.others, 0
        others.asked = lambda: requests

        async def count(store: ResourceStore, plan: RewritePlan) -> Any:
            nonlocal under_way, requests
            under_way += 1
            if it.line.lose:
                requests += 1
            most[bool(it.line.lose)] = max(most[bool(it.line.lose)], under_way)
            await it.world.clock.sleep(0.001)
            under_way -= 1
            return await commit(store, plan)

        monkeypatch.setattr(ResourceStore, "rewrite", count)
        requests = 5
        assert not others.are_none()
        await it.world.clock.advance(10)
        assert (await it.page()).rewritten == 200
        await fill(it.world, 200)
        requests, it.line.lose = 6, "never"
        await it.world.clock.advance(10)
        assert not others.are_none()
        assert (await it.page()).rewritten == 200
        assert most == {False: IN_FLIGHT_MAX, True: BESIDE_OTHERS_MAX}


def test_who_others_are() -> None:
    """Requests for a rewrite are no others; others are forgotten a moment after the last."""
    now, requests = 0.0, 0
    others = Others(lambda: now)
    others.asked = lambda: requests
    assert others.are_none()
    requests += 1
    others.note_own()
    now += 1
    assert others.are_none()
    requests += 1
    now += 1
    assert not others.are_none()
    now += ALONE_SECONDS / 2
    assert not others.are_none()
    now += ALONE_SECONDS
    assert others.are_none()


# What fails, fails by name.

UNDECODABLE = {
    "garbage": b"\x00k8s",
    "truncated": widget("truncated")[:-9],
    "truncated-in-target": widget("t", V2)[:-9],
    "no-text": widget("no-text").replace(b"uid-", b"\xff\xfe"),
    "other-kind": encode({"metadata": {"name": "k"}}, V1, "Gadget"),
    "unknown-version": widget("u", f"{GROUP}/v9"),
}


async def check_failures(it: Rewriting) -> None:
    await fill(it.world, 3)
    for name, value in UNDECODABLE.items():
        await put_raw(it.world, key_of(name), value)
    page = await it.page()
    assert (page.scanned, page.rewritten) == (9, 3)
    assert {key: bool(reason) for key, reason in page.failed} == {
        key_of(name): True for name in UNDECODABLE
    }
    for name, value in UNDECODABLE.items():
        item = await it.world.storage.get(Key(key_of(name)))
        assert item is not None
        assert item.value == value


async def test_what_cannot_be_read_fails_by_name(tmp_path: Path) -> None:
    """And stays as it is; the others are rewritten all the same."""
    async with rewriting(tmp_path) as it:
        await check_failures(it)


async def test_what_changes_for_ever_fails_by_name(tmp_path: Path) -> None:
    """An object that somebody without a fence writes before each try is not tried for ever."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 2)

        async def write_again(transaction: Transaction) -> None:
            if transaction.writes[0].key == key_of("w001"):
                await put_raw(it.world, key_of("w001"), widget("w001"))

        it.line.before = write_again
        page = await it.page()
        assert (page.rewritten, page.settled) == (1, 0)
        assert [(key, "8 times" in reason) for key, reason in page.failed] == [
            (key_of("w001"), True)
        ]


# What stops a pass.


async def test_what_is_not_agreed_on_is_not_begun(tmp_path: Path) -> None:
    """Another target, another epoch, no agreement: nothing is written."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 3)
        epoch = (await it.world.epoch()).epoch
        with pytest.raises(Aborted, match=r"in example.com/v2, not in example.com/v1"):
            await it.page(target_version=V1)
        with pytest.raises(Aborted, match=f"its epoch is {epoch}, not {epoch - 1}"):
            await it.page(epoch=epoch - 1)
        assert (await it.page(limit=1, epoch=epoch)).rewritten == 1
        await it.world.started("x+1")  # writes v1
        with pytest.raises(Aborted, match="do not agree"):
            await it.page()
        it.server.coordinator.table.close(it.resource, error="why not")
        with pytest.raises(StatusError, match="why not") as refused:
            await it.page()
        assert refused.value.code == 503
        assert await it.versions() == {V1: 2, V2: 1}


async def test_the_epoch_is_read_before_the_objects(tmp_path: Path) -> None:
    """Or a write that was agreed on by nobody could hide behind an agreement that came later."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 3)
        await it.page()
        epoch_at = it.line.trace.index(f"get {epoch_key(NAME)}")
        reads = [at for at, step in enumerate(it.line.trace) if step.startswith(f"range {ROOT}")]
        assert epoch_at < min(reads)


async def test_an_agreement_that_changes_ends_the_page_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though this server still writes the target: what it would rewrite proves nothing."""
    async with rewriting(tmp_path) as it:
        monkeypatch.setattr(rewrite_page, "READ_ITEMS_FIRST", 4)
        monkeypatch.setattr(rewrite_page, "READ_ITEMS_MAX", 4)
        moved = EpochRecord(epoch=2, kind="Widget")

        async def disagree(_: Transaction) -> None:
            put = Put(epoch_key(NAME), encode_epoch(moved))
            await MemoryStorage.commit(it.world.storage, Transaction(writes=(put,)))

        for count, rewritten in ((20, range(1, 9)), (3, range(1, 4))):
            first = encode_epoch(EpochRecord(epoch=1, kind="Widget", version=V2))
            put = Put(epoch_key(NAME), first)
            await MemoryStorage.commit(it.world.storage, Transaction(writes=(put,)))
            await fill(it.world, 20)
            it.line.before = disagree
            start = "" if count == 20 else key_of("w017")
            with pytest.raises(Aborted, match="has changed meanwhile"):
                await it.page(start_key=start)
            assert (await it.versions())[V2] in rewritten


async def test_too_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page too many is refused, and those under way do not mind; two at once do no harm."""
    async with rewriting(tmp_path) as it:
        monkeypatch.setattr(rewrite, "PAGES_AT_ONCE_MAX", 2)
        await fill(it.world, 20)
        it.line.chance = random.Random(1)
        begun = [
            asyncio.ensure_future(it.rewriter.rewrite_page(it.resource, target_version=V2))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await it.rewriter.rewrite_page(it.resource, target_version=V2)
        pages = await asyncio.gather(*begun)
        assert sum(page.rewritten for page in pages) == 20
        assert await it.versions() == {V2: 20}
        assert (await it.page()).skipped == 20


async def check_fence(it: Rewriting) -> None:
    """The encoder key goes away while commits are under way: none of them happens."""
    await fill(it.world, 20)
    gone = asyncio.Event()

    async def take_away(_: Transaction) -> None:
        if not gone.is_set():
            gone.set()
            key = encoder_key(it.server.coordinator.membership.id, NAME)
            await MemoryStorage.commit(it.world.storage, Transaction(writes=(Delete(key),)))

    it.line.before = take_away
    with pytest.raises(Aborted, match="may not be written"):
        await it.page()
    assert await it.versions() == {V1: 20}


async def check_selection(it: Rewriting) -> None:
    """Another version is selected while commits are under way: none of them happens."""
    await fill(it.world, 20)

    async def select(_: Transaction) -> None:
        put = Put(Key(f"/restow/selected/{NAME}"), V1.encode())
        await MemoryStorage.commit(it.world.storage, Transaction(writes=(put,)))

    it.line.before = select
    with pytest.raises(Aborted):
        await it.page()
    assert await it.versions() == {V1: 20}


async def test_a_failed_fence_aborts(tmp_path: Path) -> None:
    """Nothing is encoded anew, and nothing is committed, once this server may not write."""
    async with rewriting(tmp_path) as it:
        await check_fence(it)


async def test_a_selection_aborts(tmp_path: Path) -> None:
    """The same under a vote."""
    async with open_world(tmp_path) as world:
        it = Rewriting(world, await world.started("x+2", mode="strict"))
        await check_selection(it)
        world.storage.broken.clear()  # what the test itself has broken


async def test_a_switch_between_two_objects_aborts(tmp_path: Path) -> None:
    """A server that has learnt of another version itself sends no more rewrites."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 5)
        encoding = it.server.coordinator.table.encoding(it.resource)

        async def switch(_: Transaction) -> None:
            it.server.coordinator.table.open(it.resource, encoding._replace(api_version=V1))

        it.line.before = switch
        with pytest.raises(Aborted, match=r"in example.com/v1 now, not in example.com/v2"):
            await it.page()
        # One was under way, under its own fence.
        assert await it.versions() in ({V1: 5}, {V1: 4, V2: 1})


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_reply_is_looked_into(tmp_path: Path, when: str) -> None:
    """Whether or not it has happened, the object ends in the target version."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 1)
        it.line.lose = when
        page = await it.page()
        assert (page.rewritten, page.settled) == ((1, 0) if when == "before" else (0, 1))
        assert await it.versions() == {V2: 1}


# Others write at the same time.


async def check_conflict(it: Rewriting) -> None:
    """Somebody without a fence writes the old version in between: that it has changed is no proof
    that it was rewritten."""
    await fill(it.world, 4)
    touched: set[str] = set()

    async def touch(transaction: Transaction) -> None:
        key = transaction.writes[0].key
        name = key.rpartition("/")[2]
        if key not in touched:
            touched.add(key)
            version = V2 if name == "w002" else V1
            if name == "w003":
                await MemoryStorage.commit(it.world.storage, Transaction(writes=(Delete(key),)))
            else:
                await put_raw(it.world, key, widget(name, version, spec={"count": 9}))

    it.line.before = touch
    page = await it.page()
    assert (page.rewritten, page.settled, page.failed) == (2, 2, [])
    assert await it.versions() == {V2: 3}
    for name in ("w000", "w001", "w002"):
        item = await it.world.storage.get(Key(key_of(name)))
        assert item is not None
        assert orjson.loads(item.value)["spec"] == {"count": 9}


async def test_a_conflict_is_no_proof(tmp_path: Path) -> None:
    """An object that has changed is looked at again, and rewritten if it must be."""
    async with rewriting(tmp_path) as it:
        await check_conflict(it)


async def check_concurrent(it: Rewriting, seed: int) -> None:
    """Objects are changed, deleted and made anew through another server while passes run."""
    world, chance = it.world, random.Random(seed)
    other = await world.started("x+2")
    await fill(world, 12)
    it.line.chance = random.Random(seed + 1)
    expected: dict[str, int | None] = {f"w{number:03d}": 0 for number in range(12)}

    async def use(name: str) -> None:
        for step in range(1, 5):
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            if expected[name] is not None and chance.random() < 0.3:
                await other.store.delete(other.resource(), "v2", f"ns/{name}", DeleteWish())
                expected[name] = None
            else:
                await other.write(name, spec={"count": step})
                expected[name] = step

    async def rewrite_twice() -> None:
        for _ in range(2):
            start: str | None = ""
            while start is not None:
                page = await it.rewriter.rewrite_page(
                    it.resource, target_version=V2, start_key=start, limit=5
                )
                assert page.failed == []
                start = page.next_key

    async def everybody() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(rewrite_twice())
            for name in expected:
                group.create_task(use(name))

    await world.run(everybody())
    it.line.chance = None
    found = (await world.storage.range(Span.of_prefix(ROOT))).items
    assert {
        item.key.rpartition("/")[2]: orjson.loads(item.value)["spec"]["count"] for item in found
    } == {name: count for name, count in expected.items() if count is not None}
    assert set(await it.versions()) <= {V2}


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_and_nothing_comes_back(tmp_path: Path, seed: int) -> None:
    """Each acknowledged update and deletion is there in the end, and all is in the target."""
    async with rewriting(tmp_path, seed=seed) as it:
        await check_concurrent(it, seed)


# The mutants.


def _settled_by_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def current(_self: object, _plan: object, _stopped: object) -> None:
        return None

    monkeypatch.setattr(PageWork, "_current", current)


def _encodes_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rewrite_anyhow(store: ResourceStore, plan: RewritePlan) -> None:
        await store._commit(plan)

    monkeypatch.setattr(ResourceStore, "rewrite", rewrite_anyhow)


def _skips_equal_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PageWork._plan

    async def plan_changes(self: PageWork, item: Item) -> RewritePlan | None:
        found = await plan(self, item)
        if found is not None:
            old, new = orjson.loads(item.value), orjson.loads(found._value)
            if {**old, "apiVersion": ""} == {**new, "apiVersion": ""}:
                return None
        return found

    monkeypatch.setattr(PageWork, "_plan", plan_changes)


def _hides_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageWork, "_fail", lambda *_: None)


async def _check_pass(it: Rewriting) -> None:
    await fill(it.world, 10)
    await it.page()
    assert await it.versions() == {V2: 10}


async def _check_update_in_between(it: Rewriting) -> None:
    await check_concurrent(it, 3)


@pytest.mark.parametrize(
    ("mutate", "check"),
    [
        (_settled_by_conflict, check_conflict),
        (_encodes_anew, check_fence),
        (_skips_equal_objects, _check_pass),
        (_hides_failures, check_failures),
    ],
)
async def test_mutants_are_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Rewriting], Awaitable[None]],
) -> None:
    """Each naive variant fails the test that is about it."""
    async with rewriting(tmp_path) as it:
        mutate(monkeypatch)
        with pytest.raises((AssertionError, StatusError, pytest.fail.Exception)):
            await check(it)
        it.world.storage.broken.clear()


@pytest.mark.parametrize(
    ("guard", "check", "options"),
    [
        (RevisionIs, check_conflict, {}),
        (RevisionIs, _check_update_in_between, {}),
        (ValueIs, check_fence, {}),
        (ValueIs, check_selection, {"mode": "strict"}),
    ],
)
async def test_every_guard_is_needed(
    tmp_path: Path,
    guard: type[Guard],
    check: Callable[[Rewriting], Awaitable[None]],
    options: dict[str, Any],
) -> None:
    """Without the object's revision updates are lost; without the fence the audit stops it."""
    async with rewriting(tmp_path, **options) as it:
        it.line.drop = guard
        with pytest.raises((AssertionError, PromiseBroken, pytest.fail.Exception)):
            await check(it)
        it.world.storage.broken.clear()
