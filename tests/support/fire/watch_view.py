"""What watchers of the API saw, in the form in which the nine properties of a watch are checked.

The API shows an object, not a stored value, and not what was there before. So the log is brought to
what can be compared, and what was there before is what the watcher itself had seen of that object:
its picture of the world must be the true one all the time, across cuts and servers. Not here: the
properties themselves (`watch_checks`).
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
    """An item with what is compared of its value."""
    return item._replace(value=stored_content(item.value).encode())


def comparable_log(truth: Truth) -> list[RevisionEvents]:
    """The log of the objects that the load writes, with what is compared of each."""
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
    """All that is wrong with what one watcher saw."""
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
    """A stretch as a watch, and what is wrong with its beginning and its deletions."""
    span = Span.of_prefix(
        f"{WIDGETS.root}{record.namespace}/" if record.namespace else WIDGETS.root
    )
    after = Revision(stretch.after)
    items = truth.timeline.items_at(span, after)
    problems: list[str] = []
    if {show_item(item) for item in items} != set(stretch.initial):
        problems.append(f"list: what was shown at {after} is not what was there")
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
    """An event with what the watcher had seen before of that object."""
    key, revision = WIDGETS.key_of(seen.namespace, seen.name), Revision(seen.revision)
    previous = picture.get(key)
    value: bytes | None = seen.content.encode()
    match seen.type:
        case "ADDED":
            created = revision
        case "DELETED":
            created = revision if previous is None else previous.created
            if previous is not None and value != previous.value:
                problems.append(f"deletion: {key} at {revision} does not show what is gone")
            value = None
        case _:
            created = revision if previous is None else previous.created
    return Event(key, value, revision, created, previous)
