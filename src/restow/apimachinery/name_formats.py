"""Formats of names, label keys and label values.

Each rule returns what is wrong with a string, or None. Lengths are checked before patterns, and the
patterns do not backtrack, so checks take linear time.

Not here: which rule applies to which field (`metadata_rules`), and errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

SUBDOMAIN_LENGTH_MAX: Final = 253
LABEL_LENGTH_MAX: Final = 63
QUALIFIED_NAME_LENGTH_MAX: Final = SUBDOMAIN_LENGTH_MAX + 1 + LABEL_LENGTH_MAX
# Kubernetes sets no length limit for such names; storage keys have one.
PATH_SEGMENT_LENGTH_MAX: Final = 1024

_DNS_LABEL: Final = re.compile(r"[a-z0-9]+(?:-+[a-z0-9]+)*")
_DNS_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL.pattern}(?:\.{_DNS_LABEL.pattern})*")
_DNS_1035_LABEL: Final = re.compile(r"[a-z][a-z0-9]*(?:-+[a-z0-9]+)*")
_LABEL_TEXT: Final = re.compile(r"[A-Za-z0-9]+(?:[-_.]+[A-Za-z0-9]+)*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

_ENDS: Final = "and must start and end with an alphanumeric character"
# The patterns in error messages. Those above match the same strings without backtracking.
_LABEL_SHOWN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_TEXT_SHOWN: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"


def _such_as(pattern: str, *examples: str) -> str:
    named = ",  or ".join(f"'{each}'" for each in examples)
    return f"(e.g. {named}, regex used for validation is '{pattern}')"


_TEXT_EXAMPLES: Final = _such_as(_TEXT_SHOWN, "MyName", "my.name", "123-abc")
_SUBDOMAIN_RULE: Final = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    f"'.', {_ENDS} " + _such_as(rf"{_LABEL_SHOWN}(\.{_LABEL_SHOWN})*", "example.com")
)
_DNS_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{_ENDS} " + _such_as(_LABEL_SHOWN, "my-name", "123-abc")
)
_DNS_1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character "
    + _such_as("[a-z]([-a-z0-9]*[a-z0-9])?", "my-name", "abc-123")
)
_NAME_PART_RULE: Final = (
    f"name part must consist of alphanumeric characters, '-', '_' or '.', {_ENDS} {_TEXT_EXAMPLES}"
)
_QUALIFIED_NAME_RULE: Final = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ENDS} {_TEXT_EXAMPLES} with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
_LABEL_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    f"'.', {_ENDS} " + _such_as(f"({_TEXT_SHOWN})?", "MyValue", "my_value", "12345")
)

NameRule = Callable[[str], str | None]
"""Returns what is wrong with a name, or None."""


def subdomain_problem(text: str) -> str | None:
    """Check a DNS subdomain, as most names are: `example.com`."""
    if len(text) > SUBDOMAIN_LENGTH_MAX:
        return _too_long(SUBDOMAIN_LENGTH_MAX)
    return None if _DNS_SUBDOMAIN.fullmatch(text) else _SUBDOMAIN_RULE


def dns_label_problem(text: str) -> str | None:
    """Check a DNS label, as namespaces are: `kube-system`."""
    if len(text) > LABEL_LENGTH_MAX:
        return _too_long(LABEL_LENGTH_MAX)
    return None if _DNS_LABEL.fullmatch(text) else _DNS_LABEL_RULE


def dns_1035_label_problem(text: str) -> str | None:
    """Check a DNS-1035 label, which starts with a letter, as names of services were originally."""
    if len(text) > LABEL_LENGTH_MAX:
        return _too_long(LABEL_LENGTH_MAX)
    return None if _DNS_1035_LABEL.fullmatch(text) else _DNS_1035_RULE


def path_segment_problem(text: str) -> str | None:
    """Check a path segment, as names of RBAC roles are: `system:node`."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    for character in "/%":
        if character in text:
            return f"may not contain '{character}'"
    if len(text) > PATH_SEGMENT_LENGTH_MAX:
        return _too_long(PATH_SEGMENT_LENGTH_MAX)
    return "may not contain control characters" if _CONTROL.search(text) else None


def qualified_name_problem(text: str) -> str | None:
    """Check a qualified name: keys of labels and annotations, finalizers: `name`,
    `example.com/name`.
    """
    if len(text) > QUALIFIED_NAME_LENGTH_MAX:
        return _too_long(QUALIFIED_NAME_LENGTH_MAX)
    return _qualified_name_problem(text)


# Nearly every object has the same few keys.
@lru_cache(maxsize=4096)
def _qualified_name_problem(text: str) -> str | None:
    prefix, slash, name = text.rpartition("/")
    if slash:
        if "/" in prefix:
            return _QUALIFIED_NAME_RULE
        if not prefix:
            return "prefix part must be non-empty"
        if problem := subdomain_problem(prefix):
            return f"prefix part {problem}"
    if not name:
        return "name part must be non-empty"
    if len(name) > LABEL_LENGTH_MAX:
        return f"name part {_too_long(LABEL_LENGTH_MAX)}"
    return None if _LABEL_TEXT.fullmatch(name) else _NAME_PART_RULE


def label_value_problem(text: str) -> str | None:
    """Check a label value, which may be empty."""
    if len(text) > LABEL_LENGTH_MAX:
        return _too_long(LABEL_LENGTH_MAX)
    return None if not text or _LABEL_TEXT.fullmatch(text) else _LABEL_VALUE_RULE


def prefix_problem(prefix: str, rule: NameRule) -> str | None:
    """Check the prefix of a name to which characters will be appended.

    A trailing dash is valid in a prefix, so it is replaced by a letter for the check.
    """
    return rule(prefix[:-1] + "a" if prefix.endswith("-") and len(prefix) > 1 else prefix)


def _too_long(length_max: int) -> str:
    return f"must be no more than {length_max} bytes"
