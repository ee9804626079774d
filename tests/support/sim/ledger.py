"""The history of a world: every commit with its sender and time, checked against the invariants.

The audit of coordination (`tests.support.storageversion_audit`) checks a single transaction. Rules
that need the history are here. Each rule is named as in `invariants`.

Clients of a world write objects with a unique *stamp*, and with the stamp that they have read
before, if they update a version. So every stored value identifies its write, and the state it was
based on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.migration.names import PROOF_ANNOTATION
from restow.registry.custom.crds import ROOT as DEFINITIONS
from restow.storage.interface import Event, Item, Key, Revision
from restow.storageversion.identity import SERVERS_PREFIX, decode_record
from restow.storageversion.object_codec import (
    REPORTS_PREFIX,
    STATES_PREFIX,
    decode_report,
    decode_state,
)
from restow.storageversion.raw_scan import version_of
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    EPOCHS_PREFIX,
    SELECTED_PREFIX,
    EpochRecord,
    decode_epoch,
    is_held,
    parse_encoder_key,
)
from restow.storageversion.rules import UNKNOWN_HASH, StorageVersionEntry
from restow.storageversion.vote_objects import VOTES_PREFIX, decode_vote, name_of_vote
from restow.storageversion.voting import Vote

LATE_SECONDS: Final = 27.0
"""Maximum time for which a write without a fence may be in flight."""
REQUESTS_PREFIXES: Final = (
    "/registry/migration.k8s.io/storageversionmigrations/",
    "/registry/storagemigration.k8s.io/storageversionmigrations/",
)
REWRITES_AFTER_MAX: Final = 12
"""Pages that may be in flight when their migration is deleted, or agreement lost."""
FORGED: Final = "forged"


class Stored(NamedTuple):
    """One version of one object."""

    revision: Revision
    version: str
    stamp: str
    """Stamp of its write; empty: it existed before, or was not written by a client."""
    name: str


@dataclass(slots=True)
class Membership:
    """A membership key, from its first to its last moment."""

    server_id: str
    sender: str
    renewed_at: float
    lease_seconds: float
    ended_at: float | None = None


@dataclass(slots=True)
class Ledger:
    """See the module."""

    problem: Callable[[str], None]
    now: Callable[[], float]
    notice: Callable[[str], None]
    """Called with the name of each event."""
    kinds: dict[str, str]
    """Kinds by the root of their keys: of the objects that clients write."""
    names: dict[str, str]
    """Names of StorageVersions by root."""
    is_fenced: bool = True
    loose_seconds: float = 0.0
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The identities of each process."""
    memberships: dict[str, Membership] = field(default_factory=dict)
    encoders: dict[tuple[str, str], bytes] = field(default_factory=dict)
    entries: dict[str, tuple[StorageVersionEntry, ...]] = field(default_factory=dict)
    epochs: dict[str, EpochRecord] = field(default_factory=dict)
    votes: dict[str, Vote] = field(default_factory=dict)
    selected: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    persisted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    history: dict[Key, list[Stored | None]] = field(default_factory=lambda: defaultdict(list))
    revisions: dict[Key, list[Revision]] = field(default_factory=lambda: defaultdict(list))
    order: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """All revisions of objects, by root."""
    stamps: dict[str, Stored] = field(default_factory=dict)
    """Where each stamp was first stored."""
    requests: set[Key] = field(default_factory=set)
    """The keys of all existing migrations."""
    open_requests: dict[Key, str] = field(default_factory=dict)
    rewrites_after: Counter[str] = field(default_factory=Counter)
    """Rewrites of a deleted migration."""
    rewrites_split: Counter[str] = field(default_factory=Counter)
    """Rewrites since servers have ceased to agree."""
    definitions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """CRDs by the root of their objects."""
    branch: int = 0
    """Incremented when the store is replaced, or goes back."""
    branch_at: float = 0.0
    """Time of the last such change."""
    branch_floor: int = 0
    """Up to this revision, the store is the same as before the last such change."""
    accepted_at: float | None = 0.0
    """When an operator accepted the store as it is; None: it is not accepted yet."""
    unpaused_at: float = 0.0
    """Time of the last resume of a paused server."""
    lost: set[str] = field(default_factory=set)
    """Stamps of writes that were stored once, and that the present store lacks."""
    suspect: dict[str, Callable[[], bool]] = field(default_factory=dict)
    """Writes to a store that is not accepted, by stamp: whether their server can know that."""
    counts: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    """Number of evaluations of each rule."""

    _built_in: frozenset[str] = frozenset()
    _touched: set[str] = field(default_factory=set)
    _renewals: dict[tuple[Key, Revision], float] = field(default_factory=dict)
    """Time of the last write of each membership record."""
    _former_memberships: dict[str, Membership] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._built_in = frozenset(self.names.values())

    # Queries.

    def current(self, key: Key) -> Stored | None:
        found = self.history.get(key)
        return found[-1] if found else None

    def at(self, root: str, revision: int) -> dict[str, str]:
        """Stamps by path, as they were at a revision."""
        found = {}
        for key, revisions in self.revisions.items():
            if key.startswith(root):
                stored = None
                for number, each in zip(revisions, self.history[key], strict=True):
                    if number > revision:
                        break
                    stored = each
                if stored is not None:
                    found[key.removeprefix(root)] = stored.stamp
        return found

    def between(self, root: str, after: int, before: int) -> list[int]:
        """Revisions of objects under a root, between two others."""
        order = self.order[root]
        return order[bisect_right(order, after) : bisect_left(order, before)]

    def versions(self, root: str) -> Counter[str]:
        """Number of objects under a root by stored version."""
        found = (self.current(key) for key in self.history if key.startswith(root))
        return Counter(each.version for each in found if each is not None)

    def plant(self, key: Key, value: bytes, revision: Revision) -> None:
        """Add an object from before the start of the world."""
        root = next(root for root in self.kinds if key.startswith(root))
        obj = orjson.loads(value)
        stamp = str(obj["spec"]["stamp"])
        stored = Stored(revision, version_of(value), stamp, obj["metadata"]["name"])
        self.history[key].append(stored)
        self.revisions[key].append(revision)
        self.order[root].append(revision)
        self.stamps[stamp] = stored

    # Replaced stores.

    def reload(self, items: Iterable[Item], *, floor: int) -> None:
        """The store was replaced, or went back, and is unchanged up to the revision `floor`: reset
        to its content. `items`: the oldest change first."""
        stamps, problem, notice = set(self.stamps), self.problem, self.notice
        self._former_memberships |= self.memberships
        self.problem = self.notice = lambda _text: None
        self.memberships = {}
        for found in (
            *(self.encoders, self.entries, self.epochs, self.votes, self.selected),
            *(self.persisted, self.history, self.revisions, self.order, self.stamps),
            *(self.requests, self.open_requests, self.definitions),
            *(self.rewrites_after, self.rewrites_split),
        ):
            found.clear()
        for item in items:
            if item.key.startswith(tuple(self.kinds)) and not _is_object(item.value):
                continue  # a direct write, bypassing the servers
            self.commit("", (Event(item.key, item.value, item.revision, item.created, None),))
            membership = self.memberships.get(item.key.removeprefix(SERVERS_PREFIX))
            if (
                membership is not None
                and (known := self._former_memberships.get(membership.server_id)) is not None
            ):
                membership.sender = known.sender
                membership.renewed_at = self._renewals.get(
                    (item.key, item.revision), known.renewed_at
                )
        self.ids.pop("", None)
        self.problem, self.notice = problem, notice
        self.lost = (self.lost | stamps) - set(self.stamps)
        self.suspect.clear()
        self.counts["acknowledged"] = 0
        self.branch += 1
        self.branch_at = self.now()
        self.branch_floor, self.accepted_at = floor, None
        self.notice("store replaced")

    # Every commit.

    def commit(self, sender: str, events: tuple[Event, ...]) -> None:
        """Process a commit. All events have one revision."""
        self.counts["commits"] += 1
        gone = {e.key for e in events if e.value is None and e.key.startswith(SERVERS_PREFIX)}
        for event in events:
            key = event.key
            if key.startswith(SERVERS_PREFIX):
                self._server(sender, event)
            elif key.startswith(ENCODERS_PREFIX):
                self._encoder(event)
            elif key.startswith(SELECTED_PREFIX):
                name = key.removeprefix(SELECTED_PREFIX)
                value = "" if event.value is None else event.value.decode()
                self.selected[name].append((self.now(), value))
                self.notice("selected")
            elif key.startswith(REPORTS_PREFIX):
                self._report(sender, event, gone)
            elif key.startswith(EPOCHS_PREFIX):
                self._epoch(event)
            elif key.startswith(STATES_PREFIX):
                self._state(event)
            elif key.startswith(VOTES_PREFIX):
                self._vote(event)
            elif key.startswith(REQUESTS_PREFIXES):
                self._request(event)
            elif key.startswith(DEFINITIONS):
                self._definition(event)
            else:
                self._object(sender, event)
        for name in self._touched:
            self._listed(name)
        self._touched.clear()

    def _server(self, sender: str, event: Event) -> None:
        server_id, now = event.key.removeprefix(SERVERS_PREFIX), self.now()
        membership = self.memberships.get(server_id)
        if event.value is None:
            assert membership is not None
            membership.ended_at = now
            self.checked["G2"] += 1
            silence = now - membership.renewed_at
            if sender != membership.sender and silence < membership.lease_seconds - 1e-6:
                self.problem(f"G2: {sender} removed {server_id}, seen {silence:.3f} s before")
            self.notice("removed" if sender != membership.sender else "left")
            return
        record = decode_record(event.value)
        assert record is not None
        if sender:
            self._renewals[event.key, event.revision] = now
        if membership is None:
            self.memberships[server_id] = Membership(server_id, sender, now, record.lease_seconds)
            self.ids[sender].add(server_id)
            self.notice("joined")
            return
        self.checked.update(("R4", "G6"))
        if membership.ended_at is not None:
            self.problem(f"G6: the key of {server_id} has returned")
        if membership.sender != sender:
            self.problem(f"R4: {server_id} is used by {membership.sender} and {sender}")
        membership.renewed_at = now

    def _encoder(self, event: Event) -> None:
        where = parse_encoder_key(event.key)
        if event.value is None:
            self.encoders.pop(where, None)
        else:
            self.encoders[where] = event.value

    def _report(self, sender: str, event: Event, gone: set[Key]) -> None:
        name = event.key.removeprefix(REPORTS_PREFIX)
        before = {entry.server_id for entry in self.entries.get(name, ())}
        item = Item(event.key, event.value or b"", event.revision, event.created)
        after = () if event.value is None else decode_report(item).report.entries
        self.entries[name] = after
        self.notice("report")
        for server_id in before - {entry.server_id for entry in after}:
            membership = self.memberships.get(server_id)
            is_member = membership is not None and membership.ended_at is None
            self.checked["G4"] += 1
            if is_member and server_id not in self.ids[sender]:
                self.problem(
                    f"G2: {sender} removed the entry of {server_id}, which participates, of {name}"
                )
        for entry in after:
            membership = self.memberships.get(entry.server_id)
            if entry.server_id not in before and (
                membership is None or membership.ended_at is not None
            ):
                self.problem(f"G6: {entry.server_id} is in the report of {name}, and not a member")
            self.checked["G9"] += 1
            if entry.encoding_version not in entry.decodable_versions:
                self.problem(f"G9: {entry.server_id} cannot read what it writes of {name}")
            if FORGED in entry.encoding_version or FORGED in entry.server_id:
                self.problem(f"R3: the report of {name} was forged")
        self._touched.add(name)

    def _epoch(self, event: Event) -> None:
        name = event.key.removeprefix(EPOCHS_PREFIX)
        if event.value is None:
            self.epochs.pop(name, None)
        else:
            self.epochs[name] = decode_epoch(event.value)
        self.rewrites_split[name] = 0

    def _state(self, event: Event) -> None:
        if event.value is None:
            self.persisted.pop(event.key.removeprefix(STATES_PREFIX), None)
            return
        item = Item(event.key, event.value, event.revision, event.created)
        name = event.key.removeprefix(STATES_PREFIX)
        state = decode_state(item).state
        before = self.persisted.get(name)
        if before is not None and set(before) - set(state.persisted):
            self.notice("narrowed")
        self.persisted[name] = state.persisted
        plural, _, group = name.partition(".")
        self._touched.add(f"{group}.{plural}")

    def _listed(self, name: str) -> None:
        """Versions that a server may write are listed, and it can read all listed ones."""
        group, _, plural = name.rpartition(".")
        persisted = self.persisted.get(f"{plural}.{group}")
        root = next((root for root, each in self.names.items() if each == name), None)
        if root is None:
            return
        stored = set(self.versions(root))
        self._readable(name, stored)
        if persisted is None or UNKNOWN_HASH in persisted:
            return
        self.checked["M4"] += 1
        for entry in self.entries.get(name, ()):
            if (
                storage_version_hash(GroupVersionKind.of(entry.encoding_version, self.kinds[root]))
                not in persisted
            ):
                self.problem(f"M4: {entry.server_id} writes {entry.encoding_version}, not listed")
        for version in stored:
            if (
                storage_version_hash(GroupVersionKind.of(version, self.kinds[root]))
                not in persisted
            ):
                self.problem(f"M4: {name} is stored in {version}, which is not listed")

    def _readable(self, name: str, versions: set[str]) -> None:
        self.checked["F8"] += 1
        for entry in self.entries.get(name, ()):
            membership = self.memberships.get(entry.server_id)
            unread = versions - set(entry.decodable_versions)
            if unread and membership is not None and membership.ended_at is None:
                self.problem(f"F8: {entry.server_id} cannot read {unread} of {name}")

    def _vote(self, event: Event) -> None:
        name = name_of_vote(event.key)
        if event.value is None:
            self.votes.pop(name, None)
            return
        item = Item(event.key, event.value, event.revision, event.created)
        vote = self.votes[name] = decode_vote(item).vote
        before = self.selected.get(name)
        if not before or before[-1][1] in ("", vote.selected):
            return
        # It changes in this very transaction.
        self.checked["F6"] += 1
        wanted = {candidate.preferred for candidate in vote.candidates}
        if wanted != {vote.selected}:
            self.problem(f"F6: {vote.selected} is selected for {name}, accepted are {wanted}")

    def _request(self, event: Event) -> None:
        if event.value is None:
            self.requests.discard(event.key)
            self.open_requests.pop(event.key, None)
            self.rewrites_after.clear()
            self.notice("request deleted")
            return
        self.requests.add(event.key)
        obj = orjson.loads(event.value)
        conditions = (obj.get("status") or {}).get("conditions") or []
        true = {each["type"] for each in conditions if each.get("status") == "True"}
        if true & {"Succeeded", "Failed"}:
            ended = self.open_requests.pop(event.key, None)
            if ended is not None:
                self.notice("succeeded" if "Succeeded" in true else "failed")
                if "Succeeded" in true and self.is_fenced:
                    self._complete(ended, obj)
            return
        if obj["metadata"].get("deletionTimestamp"):
            return
        spec = obj["spec"]["resource"]
        is_new = event.key not in self.open_requests
        self.open_requests[event.key] = f"{spec.get('group', '')}.{spec['resource']}"
        self.rewrites_after.clear()
        is_proven = PROOF_ANNOTATION in (obj["metadata"].get("annotations") or {})
        self.notice("requested" if is_new else "proven" if is_proven else "running")
        if is_proven and self.open_requests[event.key] not in self._built_in:
            self.notice("proven custom")

    def _complete(self, name: str, request: dict[str, Any]) -> None:
        """A migration marked as verified, under an agreement that still holds, is correct."""
        said = (request["metadata"].get("annotations") or {}).get(PROOF_ANNOTATION)
        epoch = self.epochs.get(name)
        root = next((root for root, each in self.names.items() if each == name), None)
        if not said or epoch is None or root is None or epoch.version is None:
            return
        if not str(orjson.loads(said).get("mark", "")).endswith(f"epoch/{epoch.epoch}"):
            return
        self.checked["M1"] += 1
        left = set(self.versions(root)) - {epoch.version}
        if left:
            self.problem(f"M1: {name} is verified in {epoch.version}, and {left} are stored")

    def _definition(self, event: Event) -> None:
        if event.value is None:
            self._undefined(event.key)
            return
        obj = orjson.loads(event.value)
        spec = obj["spec"]
        root = f"/registry/{spec['group']}/{spec['names']['plural']}/"
        self.kinds[root] = spec["names"]["kind"]
        self.names[root] = f"{spec['group']}.{spec['names']['plural']}"
        before = self.definitions.get(root)
        self.definitions[root] = obj
        obj["metadata"]["resourceVersion"] = str(event.revision)
        storage = next(each["name"] for each in spec["versions"] if each["storage"])
        if before is not None:
            was = next(v["name"] for v in before["spec"]["versions"] if v["storage"])
            if was != storage:
                self.notice("switched")
        stored = set((obj.get("status") or {}).get("storedVersions") or [])
        self.checked["M5"] += 1
        found = {version.rpartition("/")[2] for version in self.versions(root)}
        if stored and found - stored:
            self.problem(f"M5: {found - stored} of {root} are stored, and not listed")

    def _undefined(self, key: Key) -> None:
        """A CRD is removed, after all its objects."""
        plural, _, group = key.removeprefix(DEFINITIONS).partition(".")
        root = f"/registry/{group}/{plural}/"
        self.definitions.pop(root, None)
        self.counts["undefined"] += 1
        self.notice("undefined")
        left = self.versions(root)
        if left:
            self.problem(f"R6: the CRD of {root} is removed, and {dict(left)} are stored")

    def _defined(self, sender: str, root: str, version: str) -> None:
        """A written object has a CRD, which lists the version; and its server has reported it for
        that CRD."""
        definition = self.definitions.get(root)
        if definition is None:
            self.problem(f"R6: {sender} wrote to {root}, whose CRD is removed")
            return
        if self.is_fenced:
            name, uid = self.names[root], definition["metadata"]["uid"]
            said = [self.encoders.get((server_id, name)) for server_id in self.ids[sender]]
            if uid not in {orjson.loads(each)["definition"] for each in said if each is not None}:
                self.problem(f"R6: {sender} wrote to {root} for another CRD")
        self.checked["M5"] += 1
        stored = (definition.get("status") or {}).get("storedVersions") or []
        if version.rpartition("/")[2] not in stored:
            self.problem(f"M5: {sender} wrote to {root} in {version}, which is not listed")

    def _object(self, sender: str, event: Event) -> None:
        root = next((root for root in self.kinds if event.key.startswith(root)), None)
        if root is None:
            return
        history, before = self.history[event.key], self.current(event.key)
        self.revisions[event.key].append(event.revision)
        self.order[root].append(event.revision)
        if event.value is None:
            history.append(None)
            self.counts["deletes"] += 1
            return
        obj = orjson.loads(event.value)
        spec = obj.get("spec") or {}
        stamp, version = str(spec.get("stamp", "")), version_of(event.value)
        stored = Stored(event.revision, version, stamp, obj["metadata"]["name"])
        history.append(stored)
        self._written(sender, self.names[root], version)
        if self.names[root] not in self._built_in:
            self._defined(sender, root, version)
        self._readable(self.names[root], {version})
        self._based(event.key, spec, stored, before)

    def _written(self, sender: str, name: str, version: str) -> None:
        """A server has reported what it writes."""
        if not self.is_fenced:
            self.checked["F4"] += 1
            if not self._was_selected(name, version):
                self.problem(f"F4: {sender} wrote {name} in {version}, selected long ago or never")
            return
        self.checked.update(("R1", "G5"))
        self.checked["R6"] += name not in self._built_in
        said = [self.encoders.get((server_id, name)) for server_id in self.ids[sender]]
        versions = {orjson.loads(e)["version"] for e in said if e is not None and not is_held(e)}
        if version not in versions:
            self.problem(f"R1: {sender} wrote {name} in {version}, and has reported {versions}")
        selected = self.selected.get(name)
        if selected and selected[-1][1]:
            self.checked["F1"] += 1
            if selected[-1][1] != version:
                self.problem(f"F1: {sender} wrote {name} in {version}, not the selected version")

    def _was_selected(self, name: str, version: str) -> bool:
        since = self.now() - self.loose_seconds - LATE_SECONDS
        until = float("inf")
        for at, value in reversed(self.selected[name]):
            if value == version:
                return until >= since
            until = at
        return False

    def _based(self, key: Key, spec: dict[str, Any], stored: Stored, before: Stored | None) -> None:
        stamp = stored.stamp
        if before is not None and before.stamp == stamp:
            if before.version != stored.version:
                self._rewritten(key)
            return
        self.counts["writes"] += 1
        self.checked["M9"] += 1
        if stamp in self.stamps:
            what = "was restored" if before is None else "undid a newer write"
            self.problem(f"M9: {key} {what}: {stamp} was stored before")
        self.stamps[stamp] = stored
        base = spec.get("base")
        if base is not None:
            self.checked["A1"] += 1
            found = "" if before is None else before.stamp
            if base != found:
                self.problem(f"A1: {key} was changed from {found}, while its writer read {base}")

    def _rewritten(self, key: Key) -> None:
        self.counts["rewrites"] += 1
        self.checked["M12"] += 1
        self.notice("rewritten")
        name = next(name for root, name in self.names.items() if key.startswith(root))
        epoch = self.epochs.get(name)
        self.checked.update(("M3", "M16"))
        if epoch is not None and epoch.agreement is None:
            self.rewrites_split[name] += 1
            if self.rewrites_split[name] > REWRITES_AFTER_MAX:
                self.problem(f"M3: {name} is rewritten, and servers do not agree")
        if name in self.open_requests.values():
            return
        self.rewrites_after[name] += 1
        if self.rewrites_after[name] > REWRITES_AFTER_MAX:
            self.problem(f"M16: {name} is rewritten, and its migration is deleted")


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False
