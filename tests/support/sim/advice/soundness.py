"""Compares the answers for operators with the results of the reference reader on the raw store.

S1  a release that is called safe can read every raw value, now and after writes in flight
S2  a StorageState lists the version of every raw value, unless it lists "Unknown"
S3  what `status` calls ok is stored as it is written, and can be read
S4  a healthy cluster gets "safe" for the release that it runs, within a bound (`director`)
S5  the answer does not depend on the queried server (`director`)
S6  a rollback that nothing in the store blocks is possible (`director`)
S7  nothing is read from, or acknowledged on, a store that was replaced and not accepted (`clients`)
S8  a watch from a revision of a store that was replaced ends with 410 (`clients`)
S9  an encryption key that may be removed encrypts nothing, now and after writes in flight
S10 every server that has registered a kind can decrypt all its values

S2, and S1 for writes after an answer, are checked at every commit; the others by a scan of all raw
values at each answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from restow.migration.overview_values import ClusterOverview, ResourceStatus
from restow.migration.preflight import PreflightFinding
from restow.storage.errors import CannotOpen
from restow.storage.interface import Event, Key, Span
from tests.support.sim.advice import reference
from tests.support.sim.keys import IDENTITY, ROOTS, id_of, open_value
from tests.support.sim.network import at_once
from tests.support.sim.releases import CUSTOM_GROUP, GROUP, HOSTED
from tests.support.sim.servers import SimServer
from tests.support.sim.world import World

STATES: Final = "/registry/migration.k8s.io/storagestates/"
REPORTS: Final = "/registry/storageversions/"
SERVERS: Final = "/restow/servers/"
ENCODERS: Final = "/restow/encoders/"
UNKNOWN: Final = "Unknown"
PLANTED_SECONDS: Final = 30.0
"""A migration that ends sooner after a direct write to the store may have missed its value."""
KEYS_SECONDS: Final = 5.0
"""Time after a server has loaded another configuration, in which it may still write with another
key than it has reported."""
SHOWN_MAX: Final = 3
_SERVERS_CHANGE: Final = (SERVERS, ENCODERS, reference.CRD_ROOT)
"""Keys whose change may alter an answer for a moment only."""
_PLAYED: Final = tuple(f"{reference.REGISTRY}{group}/" for group in (GROUP, CUSTOM_GROUP))


Keys = frozenset[str] | None


@dataclass(slots=True)
class Question:
    """Whether a release is safe, from the start of the request."""

    target: str
    servers: Mapping[str, str] | None
    keys: Keys
    """The encryption keys that the release is to have; None: all."""
    wrong: dict[str, str]
    """Problems of the release that have existed since the request."""


class Soundness:
    """Compares each answer, and each commit after it, with the raw store."""

    def __init__(self, world: World, *, is_voted: bool) -> None:
        """`is_voted`: servers write the version that all of them have voted for."""
        self._world = world
        self._is_voted = is_voted
        self._storage = world.storage
        self._safe: dict[tuple[str, Keys], frozenset[str]] = {}
        """Releases that were called safe, with their encryption keys, without a change by an
        operator since; and the prefixes that a server had registered then. Later registrations are
        not part of an answer."""
        self._keys_taken_at = float("-inf")
        self._unneeded: set[str] = set()
        """Encryption keys that may be removed according to preflight."""
        self.on_write: Callable[[str, str], None] = lambda _sender, _stamp: None
        """Called with each object that a server writes, by its stamp."""
        self._crds: dict[str, bytes] = {}
        self._listed: dict[str, frozenset[str]] = {}
        """The last list of each StorageState."""
        self._questions: list[Question] = []
        self._unreported: set[str] = set()
        """Resources that a server has written with the gate off, and none has registered since."""
        self._unfenced: set[str] = set()
        """Keys whose value was written by a server with the gate off."""
        self.planted: dict[str, float] = {}
        """Times of direct writes to the store, by key."""
        world.storage.on_commit = self._commit

    def forget(self) -> None:
        """An operator changes something: earlier answers are no longer valid."""
        self._safe.clear()
        self._unneeded.clear()

    def store_replaced(self) -> None:
        """The store was replaced: forget what was known of it."""
        self.forget()
        self._listed.clear()
        raw = self.raw()
        self.planted = {key: at for key, at in self.planted.items() if key in raw}
        self._crds = {k: value for k, value in raw.items() if k.startswith(reference.CRD_ROOT)}

    # Answers.

    def raw(self, prefix: str = reference.REGISTRY) -> dict[str, bytes]:
        found = at_once(self._storage.range(Span.of_prefix(prefix)))
        return {item.key: item.value for item in found.items}

    def against(
        self, target: str, servers: Mapping[str, str] | None = None, keys: Keys = None
    ) -> dict[str, str]:
        """All problems of a release, by key or server. `servers`: releases by place, of all servers
        that keep running beside it; None: those that have registered. `keys`: the encryption keys
        of the release; None: all."""
        raw = self.raw()
        reading = reference.read(raw, target, keys)
        found = dict(reading.unreadable)
        beside = self.participants() if servers is None else servers
        running = {*beside.values(), *self.participants().values()}
        owners = [each for release in sorted(running) for each in reference.kinds_of(release)]
        # A CRD of a kind that the servers build in is not accepted, whatever they run next.
        found = {
            key: why
            for key, why in found.items()
            if key in raw or not any(each.root == key for each in owners)
        }
        found |= {
            key: f"{target} has no such resource"
            for key in reading.unowned
            if reference.owner_of(key, owners) is not None
        }
        readers = [*reference.kinds_of(target), *reference.custom_kinds(raw)]
        # The replaced server keeps its keys, and has registered beside the others.
        found |= self._against_writers(target, readers, keys if servers is None else None)
        for place, release in beside.items():
            whys = self._against_server(target, release, self._world.servers[place])
            registered = self._registered(place)
            found |= {
                f"{place}: {why}": ""
                for root, why in whys
                if servers is not None or root in registered
            }
        return found

    def _against_server(
        self, target: str, release: str, server: SimServer
    ) -> list[tuple[str, str]]:
        """By root of a kind: why servers of two releases cannot run together."""
        found = _differing_locations(target, release)
        if not self._is_voted:
            found += _unreadable_by(release, target)
        if server.options.mode == "off":
            found += _unreadable_by(target, release)
        return found

    def _registered(self, place: str) -> frozenset[str]:
        """The roots of the kinds that a server may write; without a fence it may write all."""
        server = self._world.servers[place]
        if server.options.mode == "off":
            return frozenset(each.root for each in HOSTED[server.options.release])
        names = [key.rpartition("/")[2] for key in self.raw(f"{ENCODERS}{server.id}/")]
        parts = (name.rpartition(".") for name in names)
        return frozenset(f"{reference.REGISTRY}{group}/{plural}/" for group, _, plural in parts)

    def _against_writers(
        self, target: str, owners: Iterable[reference.Owner], keys: Keys
    ) -> dict[str, str]:
        """Possible writes of participating servers that the target could not read."""
        found = {}
        known = None if keys is None else {id_of(each) for each in keys}
        for key, value in self.raw(ENCODERS).items():
            group, _, plural = key.rpartition("/")[2].rpartition(".")
            owner = reference.owner_of(f"{reference.REGISTRY}{group}/{plural}/", owners)
            encoder = orjson.loads(value)
            version, key_id = encoder["version"], encoder.get("key") or IDENTITY
            if owner is not None and version not in owner.api_versions:
                found[key] = f"may write {version}, which {target} cannot read"
            is_encrypted = f"{reference.REGISTRY}{group}/{plural}/" in ROOTS
            if known is not None and is_encrypted and key_id not in known:
                found[key] = f"may write with {key_id}, which {target} does not have"
        return found

    def participants(self) -> dict[str, str]:
        """The releases of the servers that hold a membership record, by place."""
        ids = {key.removeprefix(SERVERS) for key in self.raw(SERVERS)}
        return {
            place: server.options.release
            for place, server in self._world.servers.items()
            if server.is_running and server.id in ids
        }

    def asked(
        self, target: str, servers: Mapping[str, str] | None = None, keys: Keys = None
    ) -> Question:
        """Begin a request whether a release is safe. `servers` and `keys` as in `against`."""
        question = Question(target, servers, keys, self.against(target, servers, keys))
        self._questions.append(question)
        return question

    def answered(self, question: Question, what: str, *, is_safe: bool) -> None:
        """Problems that existed from the request to the answer must be in the answer."""
        self._questions.remove(question)
        if not is_safe:
            return
        self._keep_wrong(question)
        self._world.ledger.checked["S1"] += 1
        if question.wrong:
            text = _shown(question.wrong)
            self._world.problem(f"S1: {what} called {question.target} safe; {text}")
        keys = None if question.servers is not None else question.keys
        if self._world.loop.time() < self._keys_taken_at + KEYS_SECONDS:
            keys = None  # the servers' write keys are about to change
        self._safe[question.target, keys] = self._written_prefixes()

    def keys_taken(self) -> None:
        """A server has loaded another encryption configuration."""
        self.forget()
        self._keys_taken_at = self._world.loop.time()

    def _written_prefixes(self) -> frozenset[str]:
        """Where servers may write; without a fence, everywhere."""
        places = self._world.servers
        if any(each.is_running and each.options.mode == "off" for each in places.values()):
            return frozenset({reference.REGISTRY})
        return frozenset(root for place in places for root in self._registered(place))

    def may_remove(self, key: str) -> None:
        """Preflight reports that no server needs an encryption key any more."""
        self._world.ledger.checked["S9"] += 1
        wrong = {
            each: "is encrypted with it"
            for each, value in self.raw().items()
            if open_value(each, value).key == key
        }
        if wrong:
            self._world.problem(f"S9: preflight allows removing {key}; {_shown(wrong)}")
        self._unneeded.add(key)

    def _keep_wrong(self, question: Question) -> None:
        now = self.against(question.target, question.servers, question.keys)
        question.wrong = {key: now[key] for key in question.wrong if key in now}

    def unowned(self, target: str) -> dict[str, str]:
        """Values under prefixes that neither the target nor a running release owns."""
        raw = self.raw()
        found = reference.read(raw, target).unowned
        owners = [
            each
            for release in set(self.participants().values())
            for each in reference.kinds_of(release)
        ]
        return {key: why for key, why in found.items() if reference.owner_of(key, owners) is None}

    def check_named(
        self, target: str, unowned: Mapping[str, str], said: Iterable[PreflightFinding]
    ) -> None:
        """Values that no resource owns are at least a warning."""
        texts = " ".join(f"{e.resource} {e.what} {e.why} {e.advice}" for e in said)
        wrong = {key: why for key, why in unowned.items() if key.split("/")[3] not in texts}
        if wrong:
            self._world.problem(
                f"S1: preflight called {target} safe without a warning; {_shown(wrong)}"
            )

    def wrong_status(self, overview: ClusterOverview, release: str) -> dict[str, str]:
        """Resources that are wrongly called ok, by key."""
        raw = self.raw()
        reading = reference.read(raw, release)
        found: dict[str, str] = {}
        for each in overview.resources:
            plural, _, group = each.resource.partition(".")
            root = f"{reference.REGISTRY}{group}/{plural}/"
            if each.verdict is not ResourceStatus.OK or group not in (GROUP, CUSTOM_GROUP):
                continue
            self._world.ledger.checked["S3"] += 1
            for key, value in raw.items():
                if not key.startswith(root):
                    continue
                plain, name = open_value(key, value)
                obj = reference.decode(plain)
                why = reading.unreadable.get(key, "")
                if obj is not None and obj["apiVersion"] != each.written.version:
                    why = f"is stored in {obj['apiVersion']}, written is {each.written.version}"
                agreed = IDENTITY if each.keys is None else each.keys.agreed
                if name and id_of(name) != agreed:
                    why = f"is encrypted with {name}, written is {agreed}"
                if why:
                    found[key] = why
        return found

    def called_ok(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        wrong = {key: why for key, why in after.items() if key in before}
        if wrong:
            self._world.problem(f"S3: status calls it ok; {_shown(wrong)}")

    # Every commit.

    def _commit(self, sender: str, events: tuple[Event, ...]) -> None:
        if self._questions and any(event.key.startswith(_SERVERS_CHANGE) for event in events):
            for question in self._questions:
                self._keep_wrong(question)
        for event in events:
            key = event.key
            if key.startswith(reference.CRD_ROOT):
                if event.value is None:
                    self._crds.pop(key, None)
                else:
                    self._crds[key] = event.value
            elif key.startswith(SERVERS):
                self._check_keys_of(sender)
            elif key.startswith(STATES):
                plural, _, group = key.removeprefix(STATES).partition(".")
                self._check_state(sender, group, plural)
            elif key.startswith(REPORTS):
                group, _, plural = key.removeprefix(REPORTS).rpartition(".")
                if event.value is not None and _has_entries(event.value):
                    self._unreported.discard(f"{plural}.{group}")
                self._check_state(sender, group, plural)
            elif event.value is not None:
                self._note_unreported(sender, key)
                self._check_written(sender, key, event.value)

    def _note_unreported(self, sender: str, key: Key) -> None:
        """A server with the gate off writes without recording it in the StorageState: until a
        server registers the resource, that is no evidence of what is stored."""
        parts = key.split("/")
        if not key.startswith(_PLAYED):
            return
        servers = [*self._world.servers.values(), *self._world.past]
        self._unfenced.discard(key)
        if any(each.name == sender and each.options.mode == "off" for each in servers):
            self._unreported.add(f"{parts[3]}.{parts[2]}")
            self._unfenced.add(key)

    def _check_written(self, sender: str, key: Key, value: bytes) -> None:
        """Writes after an answer must be readable by the release that was called safe, too."""
        self.planted.pop(key, None)
        if key.startswith(ROOTS):
            self._check_key(sender, key, value)
        if not self._safe or not key.startswith(reference.REGISTRY):
            return
        for (target, keys), prefixes in self._safe.items():
            if not key.startswith(tuple(prefixes)):
                continue
            owners = [*reference.kinds_of(target), *reference.custom_kinds(self._crds)]
            owner = reference.owner_of(key, owners)
            if owner is None:
                continue
            sealed = reference.why_sealed(key, value, keys)
            if why := sealed or reference.why_unreadable(key, value, owner):
                self._world.problem(
                    f"S1: {target} was called safe, then {sender} wrote {key}: {why}"
                )

    def _check_key(self, sender: str, key: Key, value: bytes) -> None:
        """An object was written: every server that has registered its kind can decrypt it."""
        plain, name = open_value(key, value)
        obj = reference.decode(plain)
        if obj is not None:
            self.on_write(sender, str((obj.get("spec") or {}).get("stamp", "")))
        if name in self._unneeded:
            self._world.problem(f"S9: {name} may be removed, and {sender} wrote {key} with it")
        root = next(each for each in ROOTS if key.startswith(each))
        for place, server in self._world.servers.items():
            if server.name != sender and root in self._registered(place):
                self._check_opens(server, {key: value}, f"{sender} wrote")

    def _check_keys_of(self, sender: str) -> None:
        """A server has renewed its membership: it can decrypt all objects of its registered
        kinds."""
        accepted_at = self._world.ledger.accepted_at
        if accepted_at is None or self._world.loop.time() < accepted_at + KEYS_SECONDS:
            return
        for place, server in self._world.servers.items():
            for root in ROOTS:
                if server.name == sender and root in self._registered(place):
                    self._check_opens(server, self.raw(root), "the store has")

    def _check_opens(self, server: SimServer, values: Mapping[str, bytes], what: str) -> None:
        if not server.is_running or server.options.mode == "off" or server.encryption is None:
            return
        self._world.ledger.checked["S10"] += 1
        for key, value in values.items():
            try:
                server.encryption.keys.open(Key(key), value)
            except CannotOpen as error:
                # With the gate off, servers do not compare their keys. If both have decrypted some
                # values under one name, a value of the other secret looks like a damaged one.
                is_ambiguous = key in self._unfenced and bool(error.tried)
                if key not in self.planted and not is_ambiguous:
                    self._world.problem(f"S10: {what} {key}, and {server.name} has no key: {error}")
                    return

    def _check_state(self, sender: str, group: str, plural: str) -> None:
        """A StorageState or a StorageVersion was written: its list covers the stored versions."""
        if group not in (GROUP, CUSTOM_GROUP):
            return
        name = f"{plural}.{group}"
        item = at_once(self._storage.get(Key(STATES + name)))
        before = self._listed.pop(name, frozenset())
        listed = frozenset[str]() if item is None else _listed_in(item.value)
        keys = frozenset[str]() if item is None else _keys_in(item.value)
        self._listed[name] = listed
        if not listed or UNKNOWN in listed or name in self._unreported:
            return
        self._world.ledger.checked["S2"] += 1
        is_narrowed = bool(before - listed)
        since = self._world.loop.time() - PLANTED_SECONDS
        wrong = {}
        for key, value in self.raw(f"{reference.REGISTRY}{group}/{plural}/").items():
            planted_at = self.planted.get(key)
            if planted_at is not None and not (is_narrowed and planted_at < since):
                continue
            plain, encrypted_with = open_value(key, value)
            if reference.hash_of(plain) not in listed:
                obj = reference.decode(plain)
                wrong[key] = "is not an object" if obj is None else f"is in {obj['apiVersion']}"
            elif UNKNOWN not in keys and id_of(encrypted_with) not in keys:
                wrong[key] = f"is encrypted with {encrypted_with}, listed are {sorted(keys)}"
        if wrong:
            self._world.problem(
                f"S2: {sender} left the StorageState of {name} at {sorted(listed)}; {_shown(wrong)}"
            )


def _differing_locations(one: str, other: str) -> list[tuple[str, str]]:
    scopes = {each.root: each.scope for each in HOSTED[one]}
    return [
        (each.root, f"{one} and {other} store {each.plural} in different locations")
        for each in HOSTED[other]
        if scopes.get(each.root, each.scope) != each.scope
    ]


def _unreadable_by(reader: str, writer: str) -> list[tuple[str, str]]:
    """Roots of kinds whose version by `writer` is unknown to `reader`, each with the reason."""
    known = {each.root: each.versions for each in HOSTED[reader]}
    return [
        (each.root, f"{writer} writes {each.plural} in {each.storage}, unknown to {reader}")
        for each in HOSTED[writer]
        if each.storage not in known.get(each.root, (each.storage,))
    ]


def _has_entries(report: bytes) -> bool:
    status: Any = orjson.loads(report).get("status") or {}
    return bool(status.get("storageVersions"))


def _listed_in(state: bytes) -> frozenset[str]:
    status: Any = orjson.loads(state).get("status") or {}
    return frozenset(status.get("persistedStorageVersionHashes") or ())


def _keys_in(state: bytes) -> frozenset[str]:
    status: Any = orjson.loads(state).get("status") or {}
    return frozenset(status.get("persistedEncryptionKeys") or (IDENTITY,))


def _shown(found: Mapping[str, str]) -> str:
    texts = [f"{key} {why}".strip() for key, why in sorted(found.items())[:SHOWN_MAX]]
    more = len(found) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")
