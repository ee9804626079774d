"""Limits on the work to validate a schema, computed before any of it is done.

Validating a schema blocks other requests, so the work is bounded by the size of the schema, not by
time: patterns by their size with repetitions expanded, rules by the length of their expressions,
and both by how often they are compiled. All limits are far above realistic schemas.

Not here: depth and node count of a schema (`schema`); costs of single rules (`cel.budget`).
"""

from __future__ import annotations

import re
from typing import Final

from restow.apimachinery.field_errors import Causes
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural.schema import Schema

# All patterns of a schema, in characters after repetitions are expanded.
PATTERN_WEIGHT_MAX: Final = 1_000_000
# All rules; those below a default count again, since they are compiled to validate it.
RULE_TEXT_MAX: Final = 200_000
# Nodes below those with rules: rules need the type of each of them.
RULE_NODES_MAX: Final = 250_000
# Nodes below those with defaults.
DEFAULT_NODES_MAX: Final = 500_000
# Total runtime cost of the rules that the defaults of a schema must satisfy.
DEFAULTS_COST_MAX: Final = 1_000_000

_RULE_TEXT_MIN: Final = 20
_CHARACTER_CLASS: Final = 4
_UNICODE_CLASS: Final = 400
_ANY_CHARACTER: Final = 12
_WEIGHT_MAX: Final = 1 << 40

_REPETITION: Final = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")


def work_problems(schema: Schema, path: str) -> list[StatusCause]:
    """Report why a schema takes too much work to validate; empty if it does not."""
    work = _Work()
    work.count(schema)
    causes = Causes()
    for is_over, what in (
        (work.pattern_weight > PATTERN_WEIGHT_MAX, "patterns are too large"),
        (work.rule_text > RULE_TEXT_MAX, "x-kubernetes-validations are too long"),
        (work.rule_nodes > RULE_NODES_MAX, "x-kubernetes-validations are about too many fields"),
        (work.default_nodes > DEFAULT_NODES_MAX, "defaults are nested too often"),
    ):
        if is_over:
            causes.forbidden(path, f"{what}, in total for the schema")
    return causes


class _Work:
    """The work that validating a schema takes."""

    def __init__(self) -> None:
        self.pattern_weight = 0
        self.rule_text = 0
        self.rule_nodes = 0
        self.default_nodes = 0

    def count(self, schema: Schema) -> tuple[int, int]:
        """Count a node and everything below it; return the number of nodes, and the length of
        rules.
        """
        nodes, text = 1, 0
        if schema.pattern:
            self.pattern_weight += pattern_weight(schema.pattern)
        for rule in schema.rules:
            text += len(rule.rule) + len(rule.message_expression) + _RULE_TEXT_MIN
        self.rule_text += text
        for each in schema.properties.values():
            if each.is_plain:
                nodes += 1
                continue
            below, rules_below = self.count(each)
            nodes += below
            text += rules_below
        for only in (schema.items, schema.additional_schema):
            if only is not None:
                below, rules_below = self.count(only)
                nodes += below
                text += rules_below
        if schema.all_of or schema.any_of or schema.one_of or schema.none_of is not None:
            for each in schema.junctors():
                self.count(each)
        if schema.rules:
            self.rule_nodes += nodes
        if schema.default is not None:
            self.default_nodes += nodes
            if text:
                self.rule_text += text
                self.rule_nodes += nodes
        return nodes, text


def pattern_weight(text: str) -> int:
    """Estimate the size of a pattern with all repetitions expanded."""
    # For each open group: the weight before it.
    groups: list[int] = []
    # The weight of this group so far, and of the part that a repetition would repeat.
    total, last = 0, 0
    at, size = 0, len(text)
    while at < size:
        character = text[at]
        end = at + 1
        if character == "(":
            groups.append(total)
            total, last = 0, 0
        elif character == ")":
            last = total
            total += groups.pop() if groups else 0
        elif character == "{" and (match := _REPETITION.match(text, at)) is not None:
            end = match.end()
            times = max(int(match[2] or match[1]), 1)
            total = min(total + last * (times - 1), _WEIGHT_MAX)
            last = min(last * times, _WEIGHT_MAX)
        else:
            if character == "[":
                end = _class_end(text, at)
                last = _CHARACTER_CLASS + (end - at)
                last += _UNICODE_CLASS * (text.count("\\p", at, end) + text.count("\\P", at, end))
            elif text.startswith(("\\p", "\\P"), at):
                end = (
                    max(text.find("}", at) + 1, at + 3) if text.startswith("{", at + 2) else at + 3
                )
                last = _UNICODE_CLASS
            elif character == "\\":
                end, last = at + 2, 1
            else:
                last = _ANY_CHARACTER if character == "." else 1
            total += last
        at = end
    return min(total + sum(groups), _WEIGHT_MAX)


def _class_end(text: str, start: int) -> int:
    """Return the position after a character class; a bracket that comes first does not close it."""
    at = start + 1
    at += text.startswith("^", at)
    at += text.startswith("]", at)
    while at < len(text) and text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at + 1
