"""The possible actions.

A transaction with guards on everything it has read is one step: an event between its read and its
commit makes it fail, and then it has not happened. Only if a rule omits a guard are read and write
two steps.
"""

from collections.abc import Callable

from tests.model.invariants import (
    ALL,
    LIVE_COLLECTED,
    UNREGISTERED_WRITE,
    UNSELECTED_WRITE,
    Invariant,
    notes_of,
)
from tests.model.protocol import Collection, Compared, Fence, Protocol, World
from tests.model.state import (
    COMPLETE,
    DELETED,
    ENDED,
    EXPIRED,
    GONE,
    HALF,
    HOLDING,
    IDLE,
    NEVER,
    NO_COLLECTION,
    NO_MIGRATION,
    NONE,
    NOT_STARTED,
    PRESENT,
    READY,
    REGISTERED,
    RENEWED,
    RUNNING,
    UNKNOWN,
    UNSEEN,
    UNSTARTED,
    V1,
    V2,
    VERSION_NAMES,
    WAITING,
    Collector,
    Incarnation,
    Migration,
    State,
    agreement,
)

Lives = tuple[Incarnation, ...]
Next = tuple[str, State]

SNAPSHOTS = frozenset(
    {Collection.OBJECT_FIRST, Collection.SERVERS_FIRST, Collection.NO_PRECONDITION}
)


class Model:
    """All possible actions under one protocol in one world."""

    def __init__(
        self, protocol: Protocol, world: World, wanted: frozenset[Invariant] = ALL
    ) -> None:
        self.protocol = protocol
        self.world = world
        self.preferred = [version for slot in world.slots for version in slot]
        self.before: list[int | None] = []
        for slot in world.slots:
            first = len(self.before)
            self.before += [None if n == 0 else first + n - 1 for n in range(len(slot))]
        self.names = [
            f"server {number} ({VERSION_NAMES[version]})"
            for number, version in enumerate(self.preferred)
        ]
        self.notes = notes_of(wanted)
        self.follows_revision = world.follows_revision or protocol.compared is Compared.REVISION
        self.final = protocol.absence_is_final
        self.everything = (1 << world.objects) - 1
        self.collect = self._collecting()

    def initial(self) -> State:
        """Objects of an older release without any records, and no server."""
        return State(
            incarnations=(NOT_STARTED,) * len(self.preferred),
            selected=NONE,
            persisted=UNKNOWN,
            stored=(V1,) * self.world.objects,
            past=(V1,) * self.world.objects if self.protocol.skips_by_cache else (),
            migration=NO_MIGRATION,
            collector=NO_COLLECTION,
            noted=0,
        )

    def canonical(self, state: State) -> State:
        """Two slots with equal incarnations can be exchanged, unless a snapshot refers to them."""
        incarnations = state.incarnations
        half = len(incarnations) // 2
        if incarnations[half:] < incarnations[:half]:
            return state._replace(incarnations=incarnations[half:] + incarnations[:half])
        return state

    @property
    def symmetric(self) -> bool:
        slots = self.world.slots
        return (
            len(slots) == 2 and slots[0] == slots[1] and self.protocol.collection not in SNAPSHOTS
        )

    def successors(self, state: State) -> list[Next]:
        """Yields each possible action with its successor state."""
        out: list[Next] = []
        for i, incarnation in enumerate(state.incarnations):
            if incarnation.process == UNSTARTED:
                self._start(state, i, out)
            elif incarnation is not GONE:
                self._run(state, i, incarnation, out)
                self._commit(state, i, incarnation, out)
        self.collect(state, out)
        if self.protocol.voting:
            self._select(state, out)
        self._begin_migration(state, out)
        self._continue_migration(state, out)
        return out

    # Processes.

    def _start(self, state: State, i: int, out: list[Next]) -> None:
        before = self.before[i]
        if before is not None and state.incarnations[before].process != ENDED:
            return
        key = PRESENT if self.protocol.key_first else NEVER
        writes = NONE if self.protocol.barrier else self.preferred[i]
        incarnation = Incarnation(HOLDING, key, UNSEEN, NONE, NONE, writes)
        out.append((f"{self.names[i]} starts", self._with(state, i, incarnation)))

    def _run(self, state: State, i: int, incarnation: Incarnation, out: list[Next]) -> None:
        rules, name = self.protocol, self.names[i]
        process, key, sight, entry, encoder, writes = incarnation
        if process == ENDED:
            unsent = self.world.delays and key == PRESENT and not (entry or encoder or writes)
            if unsent:
                after = self._registered(state, i, incarnation)
                out.append((f"{name} has ended, and its registration is committed", after))
            return
        left = writes if self.world.delays else NONE
        ended = Incarnation(ENDED, key, sight, entry, encoder, left)
        out.append((f"{name} ends", self._with(state, i, ended)))
        if process == HOLDING and (key == PRESENT or not rules.key_first):
            out.append((f"{name} registers", self._registered(state, i, incarnation)))
        if key == PRESENT:
            if self.world.switches and process == REGISTERED and entry:
                other = OTHER[entry]
                after = self._registered(state, i, incarnation, other)
                out.append((f"{name} registers {VERSION_NAMES[other]} instead", after))
            gone = self._settled(Incarnation(ENDED, DELETED, UNSEEN, NONE, NONE, left))
            incarnations = self._put(state, i, gone)
            after = (
                self._entered(state, incarnations)
                if entry
                else state._replace(incarnations=incarnations)
            )
            out.append((f"{name} withdraws", after))
            if sight == EXPIRED:
                kept = RENEWED if rules.collection is Collection.UNGUARDED_DELETE else UNSEEN
                again = HOLDING if rules.renewal_registers and not entry else process
                renewed = Incarnation(again, PRESENT, kept, entry, encoder, writes)
                out.append((f"{name} renews its key", self._with(state, i, renewed)))
        elif key == NEVER and process == REGISTERED:
            created = incarnation._replace(key=PRESENT)
            out.append((f"{name} creates its key", self._with(state, i, created)))
        elif key == DELETED and rules.renewal_creates:
            created = incarnation._replace(key=PRESENT)
            out.append((f"{name} renews its key, and so creates it", self._with(state, i, created)))

    def _registered(
        self, state: State, i: int, incarnation: Incarnation, instead: int = NONE
    ) -> State:
        """One transaction: own entry and encoder key; entries without a server key are pruned."""
        rules = self.protocol
        selected = state.selected
        version = instead or self.preferred[i]
        if rules.voting:
            selected = version = selected or version
        incarnations: list[Incarnation] = []
        for j, other in enumerate(state.incarnations):
            if j == i:
                runs = incarnation.process != ENDED
                process = REGISTERED if runs else ENDED
                writes = incarnation.writes | version if runs else incarnation.writes
                incarnations.append(
                    Incarnation(
                        process, incarnation.key, incarnation.sight, version, version, writes
                    )
                )
            elif other.key != PRESENT and (other.entry or other.encoder):
                encoder = NONE if rules.removal_takes_encoder else other.encoder
                incarnations.append(self._settled(other._replace(entry=NONE, encoder=encoder)))
            else:
                incarnations.append(other)
        return self._entered(state, tuple(incarnations), selected=selected, appended=version)

    # Writes.

    def _commit(self, state: State, i: int, incarnation: Incarnation, out: list[Next]) -> None:
        writes = incarnation.writes
        if not writes:
            return
        fence = self.protocol.fence
        for version in VERSIONS_OF[writes]:
            if fence is Fence.OWN_ENCODER:
                passes = incarnation.encoder == version
            elif fence is Fence.OWN_PRESENT:
                passes = incarnation.encoder != NONE
            elif fence is Fence.SELECTED:
                passes = state.selected == version and incarnation.encoder != NONE
            elif fence is Fence.SELECTED_ALONE:
                passes = state.selected == version
            else:
                passes = True
            if not passes:
                continue
            noted = 0
            if incarnation.entry != version:
                noted |= UNREGISTERED_WRITE
            if self.protocol.voting and state.selected != version:
                noted |= UNSELECTED_WRITE
            noted &= self.notes
            for o, was in enumerate(state.stored):
                if was != version or noted:
                    after = self._stored(state, o, version)._replace(noted=noted)
                    ended = ", which has ended," if incarnation.process == ENDED else ""
                    label = f"a write of {self.names[i]}{ended} in {VERSION_NAMES[version]} commits"
                    out.append((label, after))

    # Collection.

    def _collecting(self) -> Callable[[State, list[Next]], None]:
        if self.protocol.collection in SNAPSHOTS:
            return self._collect_by_snapshot
        return self._collect_by_server

    def _expire(self, state: State, i: int, incarnation: Incarnation, out: list[Next]) -> None:
        """Only death or a pause keeps a server from renewing its key in time."""
        if (
            incarnation.key == PRESENT
            and incarnation.sight == UNSEEN
            and incarnation.process != UNSTARTED
        ):
            if incarnation.process == ENDED:
                label = f"{self.names[i]}, which has ended, is seen as expired"
            elif self.world.pauses:
                label = f"{self.names[i]} is paused, and seen as expired"
            else:
                return
            out.append((label, self._with(state, i, incarnation._replace(sight=EXPIRED))))

    def _collect_by_server(self, state: State, out: list[Next]) -> None:
        kind = self.protocol.collection
        for i, incarnation in enumerate(state.incarnations):
            if incarnation is GONE or incarnation is NOT_STARTED:
                continue
            self._expire(state, i, incarnation, out)
            present, sight, name = incarnation.key == PRESENT, incarnation.sight, self.names[i]
            has_entry = incarnation.entry or incarnation.encoder
            if kind is Collection.ATOMIC:
                if has_entry and (not present or sight == EXPIRED):
                    out.append((f"the collector removes {name}", self._removed(state, {i})))
                continue
            if present and sight != UNSEEN:
                deleted = self._settled(incarnation._replace(key=DELETED, sight=UNSEEN))
                after = self._with(state, i, deleted)
                if sight == RENEWED:
                    after = after._replace(noted=LIVE_COLLECTED & self.notes)
                out.append((f"the collector deletes the key of {name}", after))
            if has_entry and not present:
                label = f"the collector removes the entry of {name}"
                out.append((label, self._removed(state, {i})))
            elif has_entry and kind is Collection.READ_ERROR:
                label = f"the collector cannot read the key of {name}, and removes its entry"
                out.append((label, self._removed(state, {i})))

    def _collect_by_snapshot(self, state: State, out: list[Next]) -> None:
        kind, collector = self.protocol.collection, state.collector
        entries = live = 0
        for i, incarnation in enumerate(state.incarnations):
            self._expire(state, i, incarnation, out)
            entries |= bool(incarnation.entry) << i
            live |= (incarnation.key == PRESENT and incarnation.sight == UNSEEN) << i
        servers_first = kind is Collection.SERVERS_FIRST
        kept = entries if kind is Collection.NO_PRECONDITION else 0
        if collector.phase == WAITING:
            if servers_first:
                label, taken = "the collector lists the servers", Collector(HALF, False, 0, live)
            else:
                label, taken = "the collector reads the object", Collector(HALF, True, kept, 0)
            if entries:
                out.append((label, state._replace(collector=taken)))
        elif collector.phase == HALF:
            if servers_first:
                label, taken = (
                    "the collector reads the object",
                    collector._replace(object_same=True),
                )
            else:
                label, taken = "the collector lists the servers", collector._replace(live=live)
            out.append((label, state._replace(collector=taken._replace(phase=READY))))
        elif kind is Collection.NO_PRECONDITION or collector.object_same:
            known = collector.live
            if kind is Collection.NO_PRECONDITION:
                known &= collector.entries
            removed = {
                i
                for i, incarnation in enumerate(state.incarnations)
                if incarnation.entry and not known >> i & 1
            }
            after = self._removed(state, removed) if removed else state
            out.append(("the collector writes the object", after._replace(collector=NO_COLLECTION)))
        else:
            out.append(("the collector is refused", state._replace(collector=NO_COLLECTION)))

    def _removed(self, state: State, who: set[int]) -> State:
        """Removes the entries and encoder keys of these in one transaction."""
        incarnations = list(state.incarnations)
        noted = state.noted
        for i in who:
            incarnation = incarnations[i]
            if incarnation.key == PRESENT and incarnation.sight != EXPIRED:
                noted |= LIVE_COLLECTED & self.notes
            incarnations[i] = self._settled(incarnation._replace(entry=NONE, encoder=NONE))
        return self._entered(state, tuple(incarnations))._replace(noted=noted)

    # Selection.

    def _select(self, state: State, out: list[Next]) -> None:
        """All entries vote for another version than the selected one."""
        votes = {
            self.preferred[i]
            for i, incarnation in enumerate(state.incarnations)
            if incarnation.entry
        }
        if len(votes) != 1:
            return
        (vote,) = votes
        if vote == state.selected:
            return
        incarnations: list[Incarnation] = []
        for incarnation in state.incarnations:
            moved = incarnation
            if incarnation.entry:
                if self.protocol.selection_moves_entries:
                    moved = moved._replace(entry=vote, encoder=vote)
                if incarnation.process == REGISTERED:
                    moved = moved._replace(writes=incarnation.writes | vote)
            incarnations.append(moved)
        after = self._entered(state, tuple(incarnations), selected=vote, appended=vote)
        out.append((f"{VERSION_NAMES[vote]} is selected", after))

    # Migration.

    def finish(self, state: State) -> list[Next]:
        """The actions that the migrator can do alone, except to start again."""
        out: list[Next] = []
        self._continue_migration(state, out)
        return out

    def _begin_migration(self, state: State, out: list[Next]) -> None:
        migration = state.migration
        refused = migration.phase == RUNNING and not self._may_complete(migration)
        target = agreement(state.incarnations)
        if not target or not (migration.phase == IDLE or refused):
            return
        started = Migration(RUNNING, target, 0, True, True, True)
        label = f"a migration to {VERSION_NAMES[target]} starts"
        if refused and not self.protocol.resume_compares and target == migration.target:
            started = started._replace(visited=migration.visited)
            label = f"the migration to {VERSION_NAMES[target]} resumes where it was"
        out.append((label, state._replace(migration=started)))

    def _continue_migration(self, state: State, out: list[Next]) -> None:
        migration = state.migration
        if migration.phase == RUNNING and self._may_complete(migration):
            if migration.visited != self.everything:
                self._rewrite(state, out)
            else:
                done = migration._replace(phase=COMPLETE, epoch_same=True)
                out.append(("the migration is recorded complete", state._replace(migration=done)))
        elif migration.phase == COMPLETE and state.persisted != migration.target:
            after = state._replace(persisted=migration.target)
            if migration.state_same or not self.protocol.narrowing_compares:
                out.append(("the persisted hashes are narrowed", after))

    def _may_complete(self, migration: Migration) -> bool:
        """The compared values are still those of the start; once changed, they stay changed."""
        compared = self.protocol.compared
        if compared is Compared.EPOCH:
            return migration.epoch_same
        return compared is Compared.NOTHING or migration.revision_same

    def _rewrite(self, state: State, out: list[Next]) -> None:
        """Through any server, which rejects it unless it writes the target; or a no-op."""
        migration, rules = state.migration, self.protocol
        for o, was in enumerate(state.stored):
            if migration.visited >> o & 1:
                continue
            visited = migration._replace(visited=migration.visited | 1 << o)
            written: set[int] = set()
            if was == migration.target:
                written.add(was)
            else:
                for i, incarnation in enumerate(state.incarnations):
                    if incarnation.process == REGISTERED:
                        written.add(self._written(state, i, incarnation))
            if rules.fence is not Fence.NOTHING:
                written &= {migration.target}
            for version in sorted(written):
                after = self._stored(state, o, version if rules.rewrite_writes else was)
                label = f"object {o} is rewritten in {VERSION_NAMES[version]}"
                if not rules.rewrite_writes and was != version:
                    label = f"object {o} is found equal, and not rewritten"
                out.append((label, after._replace(migration=visited)))
            if rules.skips_by_cache and state.past[o] & migration.target:
                label = f"object {o} is skipped: a cache has it in the target version"
                out.append((label, state._replace(migration=visited)))

    def _written(self, state: State, i: int, incarnation: Incarnation) -> int:
        """The version in which this server's rewrite would be committed."""
        fence = self.protocol.fence
        if fence is Fence.NOTHING:
            return state.selected if self.protocol.voting else self.preferred[i]
        if fence in {Fence.OWN_ENCODER, Fence.OWN_PRESENT}:
            return incarnation.encoder
        if fence is Fence.SELECTED:
            return state.selected if incarnation.encoder else NONE
        return state.selected

    # Parts of transactions.

    def _stored(self, state: State, o: int, version: int) -> State:
        stored = _with_item(state.stored, o, version)
        if not self.protocol.skips_by_cache:
            return state._replace(stored=stored)
        return state._replace(
            stored=stored, past=_with_item(state.past, o, state.past[o] | version)
        )

    def _with(self, state: State, i: int, incarnation: Incarnation) -> State:
        return state._replace(incarnations=self._put(state, i, incarnation))

    def _put(self, state: State, i: int, incarnation: Incarnation) -> Lives:
        incarnations = state.incarnations
        return (*incarnations[:i], incarnation, *incarnations[i + 1 :])

    def _settled(self, incarnation: Incarnation) -> Incarnation:
        """An incarnation that can do nothing more is removed, whatever it remembers."""
        if (
            self.final
            and incarnation.key == DELETED
            and not incarnation.entry
            and not incarnation.encoder
        ):
            return GONE
        return incarnation

    def _entered(
        self,
        state: State,
        incarnations: Lives,
        *,
        selected: int | None = None,
        appended: int = NONE,
    ) -> State:
        """A transaction that changes entries: agreement, epoch and StorageState follow from it."""
        rules = self.protocol
        changed = agreement(state.incarnations) != agreement(incarnations)
        persisted = state.persisted
        if rules.registration_appends and appended:
            first = persisted == UNKNOWN and not rules.state_begins_unknown
            persisted = appended if first else persisted | appended
        migration, collector = state.migration, state.collector
        if migration.phase != IDLE:
            written = changed and (rules.state_always_written or persisted != state.persisted)
            migration = Migration(
                migration.phase,
                migration.target,
                migration.visited,
                migration.epoch_same and not changed,
                migration.revision_same and not self.follows_revision,
                migration.state_same and not written,
            )
            if self._meaningless(migration):
                migration = NO_MIGRATION
        if collector.object_same:
            collector = collector._replace(object_same=False)
        return State(
            incarnations,
            state.selected if selected is None else selected,
            persisted,
            state.stored,
            state.past,
            migration,
            collector,
            state.noted,
        )

    def _meaningless(self, migration: Migration) -> bool:
        """A migration that can neither be completed nor narrow, and claims nothing."""
        if migration.epoch_same:
            return False
        if migration.phase == RUNNING:
            return self.protocol.compared is not Compared.NOTHING and self.protocol.resume_compares
        return self.protocol.narrowing_compares and not migration.state_same


VERSIONS_OF = {V1: (V1,), V2: (V2,), V1 | V2: (V1, V2)}
OTHER = {V1: V2, V2: V1}


def _with_item(items: tuple[int, ...], at: int, item: int) -> tuple[int, ...]:
    return (*items[:at], item, *items[at + 1 :])
