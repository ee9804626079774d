"""YAML as strings, lists and mappings with line numbers; the release parser reads these.

Built from the parser's events: the library's composer recurses as deep as the input and can crash
the process. It is also twice as fast.

Not here: the content of a release (`restow.kinds.release_reader`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import yaml

DEPTH_MAX: Final = 8


class YamlProblem(Exception):
    """A parse error, and its line, counted from one."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


class Text(NamedTuple):
    """A scalar, as written."""

    line: int
    value: str


class Items(NamedTuple):
    """A list."""

    line: int
    nodes: list[Node]


class Pairs(NamedTuple):
    """A mapping: alternating keys and values."""

    line: int
    nodes: list[Node]


Node = Text | Items | Pairs


def compose(data: bytes) -> Node | None:
    """Parse the only document; None if it is empty."""
    try:
        return _compose(yaml.CSafeLoader(data))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise YamlProblem(
            f"is not YAML: {error.problem}", None if mark is None else mark.line + 1
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlProblem(f"is not YAML: {str(error).splitlines()[0]}") from error


def _compose(parser: yaml.CSafeLoader) -> Node | None:
    documents: list[Node] = []
    # The list that is being filled, and its ancestors.
    filled = documents
    ancestors: list[list[Node]] = []
    while parser.check_event():
        event = parser.get_event()
        match event:
            case yaml.ScalarEvent():
                filled.append(Text(_line(event), event.value))
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                line = _line(event)
                if len(ancestors) == DEPTH_MAX:
                    raise YamlProblem("is nested too deep", line)
                node: Node
                if isinstance(event, yaml.SequenceStartEvent):
                    node = Items(line, [])
                else:
                    node = Pairs(line, [])
                filled.append(node)
                ancestors.append(filled)
                filled = node.nodes
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                filled = ancestors.pop()
            case yaml.AliasEvent():
                raise YamlProblem("aliases are not supported", _line(event))
            case yaml.DocumentStartEvent() if documents:
                raise YamlProblem("a file must contain one document", _line(event))
    return documents[0] if documents else None


def _line(event: yaml.Event) -> int:
    return 0 if event.start_mark is None else event.start_mark.line + 1
