"""Plans the writes of a server's registration and of the garbage collection of a resource.

There are two strategies. Reporting: each server writes the version that its release prefers, and
reports it. Voting: all servers write the selected version; the selection, all entries and all
encoder keys change in one transaction. Both are computed from the mirror and committed by the
caller, guarded by everything that they were computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from restow.aio import Runtime
from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.encryption.interface import Keys
from restow.registry.encoding import Encoding
from restow.registry.resource import Resource
from restow.storage.errors import StoreDamaged
from restow.storage.interface import (
    Absent,
    Delete,
    Guard,
    Item,
    Present,
    Put,
    RevisionIs,
    ValueIs,
    Write,
)
from restow.storageversion.changes import (
    REMOVED_MAX,
    MirrorView,
    StorageVersionChange,
    change,
    encoder_of,
    unchanged,
)
from restow.storageversion.errors import KeyUnsupported, NotSettled, VersionUnsupported
from restow.storageversion.identity import COMPONENT, Mode, ServerId, server_key
from restow.storageversion.membership import Membership
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import REPORTS_PREFIX, new_metadata, report_key
from restow.storageversion.participants import Participants
from restow.storageversion.records import (
    EPOCHS_PREFIX,
    decode_epoch,
    encoder_key,
    name_of,
    selected_key,
)
from restow.storageversion.rules import StorageVersionEntry, with_entry, without
from restow.storageversion.vote_objects import (
    StoredVote,
    VoteIndex,
    decode_vote,
    encode_vote,
    vote_key,
)
from restow.storageversion.voting import (
    Candidate,
    Vote,
    counted,
    drop_stale_candidates,
    first_selection,
    with_candidate,
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A registration to be committed, and the encoding that holds once it is."""

    change: StorageVersionChange
    encoding: Encoding


class KeyUse(NamedTuple):
    """The encryption keys that a server uses for a resource."""

    key_id: str
    """The key that it writes with; empty: none."""
    preferred: str
    readable: tuple[str, ...] = (IDENTITY,)


class RegistrationPlanner(Protocol):
    """Computes the entries and encodings of a resource."""

    def registration(self, resource: Resource, view: MirrorView) -> Planned:
        """Plan this server's registration. Raises `VersionUnsupported` or `NotSettled`."""

    def key_use(self, resource: Resource, current: tuple[StorageVersionEntry, ...]) -> KeyUse:
        """Return the key that this server would write with now. Raises `KeyUnsupported`."""

    def without_garbage(self, name: str, kind: str) -> StorageVersionChange | None:
        """Plan the removal of expired entries; None when nothing is recorded for the resource."""

    def names(self) -> Iterable[str]:
        """Return the resources that have a record in the store."""

    def unfounded(self) -> Iterable[str]:
        """Return the resources that this server reports and does not serve."""


class ReportPlanner:
    """Each server writes the version that it prefers. Implements `RegistrationPlanner`."""

    def __init__(
        self,
        mirror: Mirror,
        membership: Membership,
        runtime: Runtime,
        *,
        hosted: Collection[str],
        keys: Keys | None = None,
        loose_seconds: float = 0.0,
    ) -> None:
        self._mirror = mirror
        self._hosted = hosted
        self._membership = membership
        self._participants = Participants(mirror)
        self._runtime = runtime
        self._keys = keys
        """The encryption keys of this server; None: it neither encrypts nor decrypts."""
        self._loose_seconds = loose_seconds
        """How long after a change this server may go on writing the previous version."""

    def names(self) -> Iterable[str]:
        found = self._mirror.under(REPORTS_PREFIX)
        return [*(item.key.removeprefix(REPORTS_PREFIX) for item in found), *self._orphaned()]

    def _orphaned(self) -> Iterable[str]:
        """Return resources with an agreement whose StorageVersion was deleted by a client."""
        for item in self._mirror.under(EPOCHS_PREFIX):
            name = item.key.removeprefix(EPOCHS_PREFIX)
            with suppress(StoreDamaged):
                if self._mirror.get(report_key(name)) is None and decode_epoch(item.value).version:
                    yield name

    def registration(self, resource: Resource, view: MirrorView) -> Planned:
        current = self._current(view)
        version = self._version_for(resource, current)
        # KEP-2339 3.19: create or update this server's entry
        entry = self._entry(resource, version, self.key_use(resource, current))
        entries = with_entry(current, entry)
        found = self._change(
            view,
            entries,
            kind=resource.kind.store.kind,
            location=resource.location,
            guards=(self._own_guard(), *_origin_guards(resource)),
            writes=self._own_encoder(view, entry),
        )
        return Planned(found, self._fence(resource, entry))

    def _version_for(self, resource: Resource, current: tuple[StorageVersionEntry, ...]) -> str:
        """Return the version that this server would write: if possible, the one that it prefers.

        A CRD may name a version that was just added. Until all other servers report that they can
        read it, this server writes one that they can; its own entry already lists the new one as
        decodable. Raises `NotSettled`.
        """
        self._check_definitions(resource, current)
        if resource.origin is None:
            return resource.storage_api_version
        own = self._membership.id
        others = [entry for entry in current if entry.server_id != own]
        versions = [resource.storage_api_version]
        versions += [entry.encoding_version for entry in current if entry.server_id == own]
        versions += [entry.encoding_version for entry in others]
        for version in versions:
            is_known = version in (*resource.decodable, resource.storage_api_version)
            if is_known and all(version in entry.decodable_versions for entry in others):
                return version
        raise NotSettled(
            f"not all servers support the versions of {resource.kind.group_resource} yet"
        )

    def _check_definitions(
        self, resource: Resource, current: tuple[StorageVersionEntry, ...]
    ) -> None:
        """Raise `NotSettled` while others report a resource of the same name that comes from
        another CRD, or from none: they may store it differently.

        A recreated CRD has its own vote; an aggregated server has no CRD.
        """
        name = resource.kind.group_resource
        uid = "" if resource.origin is None else resource.origin.uid
        foreign = [e for e in current if e.definition != uid]
        if not foreign:
            return
        listed = ", ".join(entry.server_id for entry in foreign)
        if not uid:
            raise NotSettled(
                f"{listed} serve {name} from a CustomResourceDefinition: delete that, or serve"
                " another group"
            )
        if all(entry.definition for entry in foreign):
            raise NotSettled(f"{listed} still report an earlier CRD of {name}")
        raise NotSettled(f"{listed} serve {name} without a CRD, as aggregated servers do")

    def without_garbage(self, name: str, kind: str) -> StorageVersionChange | None:
        view = MirrorView.of(self._mirror, name)
        if view.stored is None and view.report.agreement is None:
            return None
        # KEP-2339 3.35: get the object and the servers, remove stale entries
        return self._change(view, self._current(view), kind=kind)

    def key_use(self, resource: Resource, current: tuple[StorageVersionEntry, ...]) -> KeyUse:
        """Return the preferred key once all other servers report that they can read it; until then
        one that they can read. This server's entry already lists its own readable keys. Raises
        `KeyUnsupported`, or the errors of `Keys`."""
        name = resource.kind.group_resource
        readable: tuple[str, ...] = (IDENTITY,)
        writable: tuple[str, ...] = ("",)
        preferred = ""
        if self._keys is not None and not resource.kind.pinned:
            readable, writable = self._keys.readable(name), self._keys.writable(name)
            preferred = self._keys.write_key(name)
        own = self._membership.id
        others = [entry for entry in current if entry.server_id != own]
        key_ids = [preferred, *(entry.key_id for entry in current), *writable]
        for key_id in key_ids:
            # KEP-2339 3.71: use a key only when all servers can read it
            if key_id in writable and all(is_readable(key_id, e.readable_keys) for e in others):
                return KeyUse(key_id, preferred, readable)
        lacking = [e.server_id for e in others if not is_readable(preferred, e.readable_keys)]
        raise KeyUnsupported(
            f"{', '.join(lacking)} cannot read {preferred or IDENTITY}, with which this server"
            f" would write {name}, nor is there another key that all have: give all servers both"
        )

    def _entry(self, resource: Resource, api_version: str, key: KeyUse) -> StorageVersionEntry:
        """Return this server's entry for a resource that it writes in a version, with a key."""
        return StorageVersionEntry(
            server_id=self._membership.id,
            encoding_version=api_version,
            # KEP-2339 3.11: the decodable versions include the one that is written
            decodable_versions=tuple(dict.fromkeys((*resource.decodable, api_version))),
            # KEP-2339 3.12: the served versions
            served_versions=tuple(resource.api_version(version) for version in resource.served),
            key_id=key.key_id,
            readable_keys=key.readable,
            preferred_key=None if key.preferred == key.key_id else key.preferred,
            loose_seconds=self._loose_seconds,
            location=resource.location,
            definition="" if resource.origin is None else resource.origin.uid,
            is_closing=resource.origin is not None and resource.origin.is_closing,
        )

    def _fence(self, resource: Resource, entry: StorageVersionEntry) -> Encoding:
        """Return the encoding of a resource under an entry.

        Pinned kinds are guarded by the server's key alone: the registration of other kinds depends
        on them, and they have one version in all releases.
        """
        if resource.kind.pinned:
            return Encoding(entry.encoding_version, (self._own_guard(),))
        return Encoding(entry.encoding_version, self._guards(resource, entry), entry.key_id)

    def _guards(self, resource: Resource, entry: StorageVersionEntry) -> tuple[Guard, ...]:
        name = name_of(resource.kind.group_resource)
        return (ValueIs(encoder_key(entry.server_id, name), encoder_of(entry)),)

    def _current(self, view: MirrorView) -> tuple[StorageVersionEntry, ...]:
        """Return the entries without those of expired servers, and without this server's own if it
        does not serve the resource, which no other server can determine."""
        entries = view.report.entries
        gone = [e.server_id for e in entries if self._participants.is_garbage(view.name, e)]
        if view.name not in self._hosted:
            gone.insert(0, self._membership.id)
        # KEP-2339 3.20: drop entries of servers that do not participate
        return without(entries, gone[:REMOVED_MAX])

    def unfounded(self) -> Iterable[str]:
        """The resources that this server reports and does not serve."""
        prefix = encoder_key(self._membership.id, "")
        found = [item.key.removeprefix(prefix) for item in self._mirror.under(prefix)]
        return [name for name in found if name not in self._hosted]

    def _own_guard(self) -> Present:
        # KEP-2339 3.38: a server reports only while it is a member
        return Present(server_key(self._membership.id))

    def _own_encoder(self, view: MirrorView, entry: StorageVersionEntry) -> tuple[Write, ...]:
        """Write this server's encoder key even if the entry is unchanged: a client may have deleted
        it."""
        if entry not in view.report.entries:
            return ()  # The change of the entry writes it.
        return (Put(encoder_key(entry.server_id, view.name), encoder_of(entry)),)

    def _change(
        self,
        view: MirrorView,
        entries: tuple[StorageVersionEntry, ...],
        *,
        kind: str,
        guards: Iterable[Guard] = (),
        writes: Iterable[Write] = (),
        selected: str | None = None,
        selection_moves: bool = False,
        location: str = "",
    ) -> StorageVersionChange:
        return change(
            view,
            entries,
            kind=kind,
            obstacle=self._participants.obstacle(entries),
            now=self._runtime.clock.wall(),
            new_uid=self._runtime.ids.uid,
            guards=guards,
            writes=writes,
            selected=selected,
            selection_moves=selection_moves,
            location=location,
            own=self._membership.id,
            aggregated=self._aggregated(),
        )

    def _aggregated(self) -> frozenset[ServerId]:
        """Return the aggregated servers, with this one, whose record may not be mirrored yet."""
        is_aggregated = self._membership.options.component != COMPONENT
        own = frozenset({self._membership.id} if is_aggregated else ())
        return self._participants.aggregated() | own


class VotePlanner(ReportPlanner):
    """All servers write the selected version. Implements `RegistrationPlanner`."""

    def __init__(
        self,
        mirror: Mirror,
        membership: Membership,
        runtime: Runtime,
        *,
        hosted: Collection[str],
        votes: VoteIndex,
        may_force: bool,
        keys: Keys | None = None,
        loose_seconds: float = 0.0,
        still_written: Callable[[Resource], Collection[str]] = lambda _resource: (),
    ) -> None:
        """`still_written` returns the versions in which this server's writes may still commit, if
        it has no fence."""
        super().__init__(
            mirror,
            membership,
            runtime,
            hosted=hosted,
            keys=keys,
            loose_seconds=loose_seconds,
        )
        self._votes = votes
        self._may_force = may_force
        self._still_written = still_written
        self._is_strict = membership.options.mode == "strict"

    def names(self) -> Iterable[str]:
        return {*super().names(), *self._votes.names()}

    def registration(self, resource: Resource, view: MirrorView) -> Planned:
        # KEP-1201 0.5: get the vote on this resource
        item = self._votes.find(view.name)
        stored = None if item is None else decode_vote(item)
        entries = self._current(view)
        self._check_definitions(resource, entries)
        # KEP-1201 0.24: a custom resource votes for the version in its CRD
        own = Candidate(self._membership.id, resource.storage_api_version)
        # KEP-1201 0.6: create the vote when there is none
        before = stored.vote if stored is not None else self._first_vote(own, entries)
        # KEP-1201 0.8: create or update this server's candidate
        vote = self._counted(with_candidate(before, own), entries, is_member=True)
        self._check_writable(resource, vote.selected)
        # KEP-1201 0.12: write the selected version
        entry = self._entry(resource, vote.selected, self.key_use(resource, entries))
        encoding = self._fence(resource, entry)
        entry = self._with_older(resource, entry, entries)
        entries = with_entry(self._moved(entries, before, vote), entry)
        found = self._change(
            view,
            entries,
            kind=resource.kind.store.kind,
            location=resource.location,
            guards=(
                # KEP-1201 0.13: the server is a member before it votes
                self._own_guard(),
                *_origin_guards(resource),
                # KEP-1201 0.9: guard that those servers do not participate
                *self._gone(before, vote),
                *self._vote_guards(view.name, item),
            ),
            writes=(
                *self._vote_writes(view.name, item, stored, vote),
                *self._own_encoder(view, entry),
            ),
            selected=vote.selected,
            selection_moves=vote.selected != before.selected,
        )
        return Planned(found, encoding)

    def without_garbage(self, name: str, kind: str) -> StorageVersionChange | None:
        item, view = self._votes.find(name), MirrorView.of(self._mirror, name)
        if item is None:
            return super().without_garbage(name, kind)
        stored = decode_vote(item)
        entries = self._current(view)
        remaining = self._own_removed(name, stored.vote)
        if any(entry.definition for entry in view.report.entries):
            # The CRD may be deleted or may no longer list the version, and no guard here detects
            # it. The remaining voters register again, guarded by the CRD's revision, and count.
            vote = drop_stale_candidates(remaining, self._participants.servers())
        else:
            # KEP-1201 0.15: count again when the last old server has left
            vote = self._counted(remaining, entries)
        return self._change(
            view,
            self._moved(entries, stored.vote, vote),
            kind=kind,
            guards=(
                *self._gone(stored.vote, vote),
                *self._vote_guards(name, item),
            ),
            writes=self._vote_writes(name, item, stored, vote),
            selected=vote.selected if vote.candidates else None,
            selection_moves=vote.selected != stored.vote.selected,
        )

    def encoding_of(self, resource: Resource, selected: str, key_id: str) -> Encoding:
        """Return the encoding of a resource in a selected version with an unchanged key. Raises
        `VersionUnsupported`."""
        self._check_writable(resource, selected)
        return self._fence(resource, self._entry(resource, selected, KeyUse(key_id, key_id)))

    def _guards(self, resource: Resource, entry: StorageVersionEntry) -> tuple[Guard, ...]:
        """Return the guards of a write: in strict mode that its version is the selected one."""
        if not self._is_strict:
            return ()
        name = name_of(resource.kind.group_resource)
        # KEP-1201 0.18: strict: each write requires that its version is the selected one
        selected = ValueIs(selected_key(name), entry.encoding_version.encode())
        return (selected, *super()._guards(resource, entry))

    def _first_vote(self, own: Candidate, entries: tuple[StorageVersionEntry, ...]) -> Vote:
        """Return the vote that the first voter creates. Raises `NotSettled` when it has to wait."""
        selected: str | None = None
        if not self._participants.unfenced():
            members = self._participants.servers()
            selected = first_selection(own.preferred, own.server_id, members, entries)
        if selected is None and self._may_force:
            selected = own.preferred
        if selected is None:
            raise NotSettled(
                "servers that do not vote are running, and have not all reported one version:"
                " stop them, or start with --vote-bootstrap=force"
            )
        return Vote(selected)

    def _own_removed(self, name: str, vote: Vote) -> Vote:
        """Return the vote without this server, if it no longer serves the resource."""
        if name in self._hosted:
            return vote
        own = self._membership.id
        return replace(vote, candidates=tuple(c for c in vote.candidates if c.server_id != own))

    def _gone(self, before: Vote, after: Vote) -> tuple[Guard, ...]:
        """Guard that other servers whose candidates are removed have no membership key."""
        remaining = {self._membership.id, *(c.server_id for c in after.candidates)}
        return tuple(
            Absent(server_key(c.server_id))
            for c in before.candidates
            if c.server_id not in remaining
        )

    def _counted(
        self, vote: Vote, entries: tuple[StorageVersionEntry, ...], *, is_member: bool = False
    ) -> Vote:
        """Return the vote without expired servers, counted. `is_member`: this server is a member
        even if the mirror has no record yet; a guard verifies it at the commit."""
        # KEP-1201 0.7: get the participating servers
        members = self._participants.servers()
        if is_member:
            members.setdefault(self._membership.id, self._membership.record)
        current = drop_stale_candidates(vote, members)
        if self._participants.unfenced():
            return current
        return counted(current, members, entries)

    def _check_writable(self, resource: Resource, selected: str) -> None:
        if selected not in (*resource.decodable, resource.storage_api_version):
            # KEP-1201 0.27: a server that does not support the selection writes nothing else
            raise VersionUnsupported(
                f"the servers have selected {selected} for {resource.kind.group_resource}, which"
                f" this server cannot write (it supports {', '.join(resource.decodable)}): go up or"
                " down by one release at a time"
            )

    def _with_older(
        self,
        resource: Resource,
        entry: StorageVersionEntry,
        entries: tuple[StorageVersionEntry, ...],
    ) -> StorageVersionEntry:
        """Return this server's entry with all versions in which its writes may still commit; the
        version that it has listed so far stays first."""
        older = {*self._still_written(resource)} & {*entry.decodable_versions}
        older.discard(entry.encoding_version)
        if not older:
            return entry
        known = [e.encoding_version for e in entries if e.server_id == entry.server_id]
        first, *others = sorted(older, key=lambda version: (version not in known, version))
        # KEP-1201 0.21: list both versions until no older write can commit
        return replace(
            entry, encoding_version=first, other_versions=(*others, entry.encoding_version)
        )

    def _moved(
        self, entries: tuple[StorageVersionEntry, ...], before: Vote, after: Vote
    ) -> tuple[StorageVersionEntry, ...]:
        """Return the entries after a change of the selection. Entries of strict voters change with
        it. Loose voters follow later, so their entries list both versions."""
        if before.selected == after.selected:
            return entries
        modes = self._participants.modes()
        return tuple(_moved_to(after.selected, e, modes.get(e.server_id)) for e in entries)

    def _vote_guards(self, name: str, item: Item | None) -> tuple[Guard, ...]:
        key, selected = selected_key(name), self._mirror.get(selected_key(name))
        if item is None:
            return (Absent(key),)  # A selected version without a vote: the mirror is stale.
        # KEP-1201 0.11: update only the revision that was read
        return (unchanged(key, selected), RevisionIs(item.key, item.revision))

    def _vote_writes(
        self, name: str, item: Item | None, stored: StoredVote | None, vote: Vote
    ) -> tuple[Write, ...]:
        """Return the writes of the vote and of the selected version, where they have changed."""
        selected = selected_key(name)
        if item is not None and not vote.candidates:
            # KEP-1201 0.17: delete a vote without participating candidates
            return (Delete(item.key), Delete(selected))
        metadata: Mapping[str, object]
        if item is None or stored is None:
            key = vote_key(name, vote.selected)
            metadata = new_metadata(
                key.rpartition("/")[2], uid=self._runtime.ids.uid(), now=self._runtime.clock.wall()
            )
        else:
            key, metadata = item.key, stored.metadata
        value = encode_vote(StoredVote(vote, metadata))
        known, text = self._mirror.get(selected), vote.selected.encode()
        writes: list[Write] = []
        if item is None or value != item.value:
            writes.append(Put(key, value))
        if known is None or known.value != text:
            writes.append(Put(selected, text))
        return tuple(writes)


def _moved_to(selected: str, entry: StorageVersionEntry, mode: Mode | None) -> StorageVersionEntry:
    match mode:
        case "strict":
            return replace(entry, encoding_version=selected)
        case "loose":
            _, *others = dict.fromkeys((*entry.written, selected))
            return replace(entry, other_versions=tuple(others))
        case _:
            return entry


def _origin_guards(resource: Resource) -> tuple[Guard, ...]:
    """Guard that the CRD of a custom resource is unchanged since it was read."""
    origin = resource.origin
    return () if origin is None else (RevisionIs(origin.key, origin.revision),)
