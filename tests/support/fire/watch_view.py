"""Converts API watch events to the form in which the nine properties of a watch are checked.

The API returns an object, not a stored value, and no previous value. So the log is reduced to the
compared parts, and the previous value is the last one that the watcher itself saw: its view must be
correct all the time, across interruptions and servers. Not here: the properties themselves
(`watch_checks`).
"""

from __future__ import annotations

from restow.storage.feed import RevisionEvents
from restow.storage.interface import Batch, Event, Item, Key, Revision, Span
from restow.testing.watch_checks import WatchRecord, check_watch
from tests.support.fire.objects import WIDGETS, stored_content
from tests.support.fire.record import Seen, Stretch, WatcherRecord
from tests.support.fire.replay_check import show_item
from tests.support.fire.truth import Truth


def comparable(item: Item) -> Item:
    """An item reduced to the compared parts of its value."""
    return item._replace(value=stored_content(item.value).encode())


def comparable_log(truth: Truth) -> list[RevisionEvents]:
    """The log of the objects that the load writes, reduced to the compared parts."""
    log: list[RevisionEvents] = []
    for entry in truth.log:
        events = tuple(
            event._replace(
                value=None if event.value is None else stored_content(event.value).encode(),
                previous=None if event.previous is None else comparable(event.previous),
            )
            for event in entry.events
            if event.key.startswith(WIDGETS.root)
        )
        if events:
            log.append(RevisionEvents(entry.revision, events))
    return log


def check_watcher(record: WatcherRecord, truth: Truth, log: list[RevisionEvents]) -> list[str]:
    """All violations in the events of one watcher."""
    problems: list[str] = []
    for stretch in record.stretches:
        watch, odd = as_watch(record, stretch, truth)
        problems += odd + check_watch(watch, log)
    if not record.reached_end:
        problems.append("end: it never saw the last objects")
    who = f"watcher {record.number} of {record.namespace or 'everything'}"
    return [f"{who}: {problem}" for problem in problems]


def as_watch(
    record: WatcherRecord, stretch: Stretch, truth: Truth
) -> tuple[WatchRecord, list[str]]:
    """A stretch as a watch, and violations at its beginning and in its deletions."""
    span = Span.of_prefix(
        f"{WIDGETS.root}{record.namespace}/" if record.namespace else WIDGETS.root
    )
    after = Revision(stretch.after)
    items = truth.timeline.items_at(span, after)
    problems: list[str] = []
    if {show_item(item) for item in items} != set(stretch.initial):
        problems.append(f"list: the items at {after} differ from the stored ones")
    picture = {item.key: comparable(item) for item in items}
    watch = WatchRecord(span, after)
    for seen in stretch.seen:
        revision = Revision(seen.revision)
        if not seen.name:
            watch.batches.append(Batch(revision, ()))
            continue
        event = _event(seen, picture, problems)
        watch.batches.append(Batch(revision, (event,)))
        if event.value is None:
            picture.pop(event.key, None)
        else:
            picture[event.key] = Item(event.key, event.value, revision, event.created)
    return watch, problems


def _event(seen: Seen, picture: dict[Key, Item], problems: list[str]) -> Event:
    """An event with the previous state that the watcher had seen."""
    key, revision = WIDGETS.key_of(seen.namespace, seen.name), Revision(seen.revision)
    previous = picture.get(key)
    value: bytes | None = seen.content.encode()
    match seen.type:
        case "ADDED":
            created = revision
        case "DELETED":
            created = revision if previous is None else previous.created
            if previous is not None and value != previous.value:
                problems.append(f"deletion: {key} at {revision} does not have the last state")
            value = None
        case _:
            created = revision if previous is None else previous.created
    return Event(key, value, revision, created, previous)
