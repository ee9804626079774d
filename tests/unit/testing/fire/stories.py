"""Small logs of a store, and possible replies to clients."""

from __future__ import annotations

from typing import Any

import orjson

from restow.storage.feed import RevisionEvents
from restow.storage.interface import Event, Item, Key, Revision
from tests.support.fire.objects import WIDGETS, Spec, content_of
from tests.support.fire.record import Operation, Verb
from tests.support.fire.truth import Truth, truth_of

NAMESPACE, UID = "fire-0", "uid-1"


def value_of(spec: Spec, *, version: str = "v1", uid: str = UID) -> bytes:
    """An object as it is stored."""
    stored = WIDGETS.body_of(version, "a", spec)
    stored["metadata"] |= {"uid": uid, "namespace": NAMESPACE}
    # As a server writes it: the kind first.
    return orjson.dumps({"kind": stored.pop("kind"), **stored})


class Story:
    """A log that grows; its first revision is 2, as that of every store."""

    def __init__(self) -> None:
        self.log: list[RevisionEvents] = []
        self._held: dict[Key, Item] = {}

    @property
    def truth(self) -> Truth:
        return truth_of(self.log)

    def put(self, key: Key, value: bytes) -> int:
        revision = Revision(len(self.log) + 2)
        previous = self._held.get(key)
        created = revision if previous is None else previous.created
        self.log.append(RevisionEvents(revision, (Event(key, value, revision, created, previous),)))
        self._held[key] = Item(key, value, revision, created)
        return revision

    def delete(self, key: Key) -> int:
        revision, previous = Revision(len(self.log) + 2), self._held.pop(key)
        event = Event(key, None, revision, previous.created, previous)
        self.log.append(RevisionEvents(revision, (event,)))
        return revision

    def write(self, token: str, name: str = "a", *, counts: Spec | None = None, **more: Any) -> int:
        """An object of the load."""
        spec = {"token": token, "counts": counts or {}}
        return self.put(WIDGETS.key_of(NAMESPACE, name), value_of(spec, **more))


def told(
    verb: Verb,
    token: str,
    revision: int = 0,
    *,
    at: tuple[float, float] = (0.0, 99.0),
    status: int = 200,
    counts: Spec | None = None,
    **more: Any,
) -> Operation:
    """A reply to a client, correct by default."""
    spec: Spec = {} if verb in ("delete", "get", "list") else {"token": token}
    if spec:
        spec["counts"] = counts or {}
    fields: dict[str, Any] = {
        "writer": 0,
        "server": 0,
        "namespace": NAMESPACE,
        "name": "a",
        "uid": UID,
        "content": content_of(UID, spec) if spec and status < 300 else "",
    }
    return Operation(
        verb=verb,
        token=token,
        spec=spec,
        began=at[0],
        ended=at[1],
        status=status,
        revision=revision,
        **(fields | more),
    )
