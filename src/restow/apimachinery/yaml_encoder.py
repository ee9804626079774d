"""Encodes values as YAML, in small steps.

YAML takes about 0.3 s per MiB, so the encoder yields every few hundred events, and the caller can
run other work in between. The output equals `yaml.dump` with sorted keys.

Not here: decoding YAML (`yaml_codec`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any, Final

import yaml
from yaml import events

STEP_COST_MAX: Final = 250
"""Cost of one step, some 3 ms: 1 per event, and 1 per `COST_CHARACTERS` of a string.

A string is never split: one of 1 MiB takes 16 ms.
"""
COST_CHARACTERS: Final = 800

_MAP_TAG: Final = "tag:yaml.org,2002:map"
_SEQUENCE_TAG: Final = "tag:yaml.org,2002:seq"
_TEXT_TAG: Final = "tag:yaml.org,2002:str"


def encode(value: Any) -> bytes:
    """Encode a JSON value as a YAML document."""
    dumper, output = _dumper()
    return b"".join(_emit(dumper, output, _events(dumper, value)))


def encode_sequence(items: Iterable[Any]) -> Iterator[bytes]:
    """Encode a sequence of JSON values as a YAML document, in pieces of one step; some are empty.

    An item is taken from `items` after the previous one was encoded.
    """
    dumper, output = _dumper()
    return _emit(dumper, output, _sequence_events(dumper, items))


def _dumper() -> tuple[yaml.CSafeDumper, BytesIO]:
    output = BytesIO()
    return yaml.CSafeDumper(output, encoding="utf-8", allow_unicode=True), output


def _emit(
    dumper: yaml.CSafeDumper, output: BytesIO, content: Iterator[events.Event]
) -> Iterator[bytes]:
    dumper.emit(events.StreamStartEvent(encoding="utf-8"))
    dumper.emit(events.DocumentStartEvent(explicit=False))
    cost = 0
    for event in content:
        dumper.emit(event)
        cost += 1
        if isinstance(event, events.ScalarEvent):
            cost += len(event.value) // COST_CHARACTERS
        if cost >= STEP_COST_MAX:
            cost = 0
            yield _take(output)
    dumper.emit(events.DocumentEndEvent(explicit=False))
    dumper.emit(events.StreamEndEvent())
    yield _take(output)


def _take(output: BytesIO) -> bytes:
    piece = output.getvalue()
    output.seek(0)
    output.truncate()
    return piece


def _events(dumper: yaml.CSafeDumper, value: Any) -> Iterator[events.Event]:
    if isinstance(value, dict):
        yield events.MappingStartEvent(None, _MAP_TAG, implicit=True, flow_style=False)
        for key in sorted(value):
            yield _scalar(dumper, key)
            yield from _events(dumper, value[key])
        yield events.MappingEndEvent()
    elif isinstance(value, list):
        yield from _sequence_events(dumper, value)
    else:
        yield _scalar(dumper, value)


def _sequence_events(dumper: yaml.CSafeDumper, items: Iterable[Any]) -> Iterator[events.Event]:
    yield events.SequenceStartEvent(None, _SEQUENCE_TAG, implicit=True, flow_style=False)
    for item in items:
        yield from _events(dumper, item)
    yield events.SequenceEndEvent()


def _scalar(dumper: yaml.CSafeDumper, value: Any) -> events.ScalarEvent:
    node = dumper.represent_data(value)
    # Whether the plain form, and the quoted form, would be parsed as the same type.
    found_tag = dumper.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
    implicit = (found_tag == node.tag, node.tag == _TEXT_TAG)
    return events.ScalarEvent(None, node.tag, implicit, node.value)
