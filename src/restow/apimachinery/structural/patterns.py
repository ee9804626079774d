"""Regular expressions from users, matched in linear time by RE2.

RE2 has the syntax of Go's `regexp`, and like it rejects what cannot be matched in linear time:
lookaround and backreferences. Compiled patterns are cached, and their size is limited.

Not here: which fields have patterns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

# Far above any readable pattern.
PATTERN_LENGTH_MAX: Final = 64 * 1024
# Memory of one compiled program; `x{1000}` inside `(…){1000}` exceeds it and is rejected.
_PROGRAM_BYTES_MAX: Final = 8 << 20
_CACHED_MAX: Final = 4096

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _PROGRAM_BYTES_MAX

# RE2's error messages, and the equivalent messages of Go's `regexp`.
_GO_MESSAGES: Final = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": "expression too large",
}


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def found_in(self, text: str) -> bool:
        """Report whether the pattern matches anywhere; strings with lone surrogates never match."""
        try:
            return self._compiled.search(text) is not None
        except UnicodeEncodeError:
            return False

    def first(self, text: str) -> str:
        """Return the first match, or the empty string."""
        match = self._compiled.search(text)
        return match.group() if match is not None else ""

    def all(self, text: str, count_max: int = -1) -> list[str]:
        """Return all non-overlapping matches, or at most `count_max`."""
        found: list[str] = []
        for match in self._compiled.finditer(text):
            if len(found) == count_max:
                break
            found.append(match.group())
        return found


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern; ValueError with Go's message if it is invalid."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise ValueError(f"error parsing regexp: longer than {PATTERN_LENGTH_MAX} characters")
    # RE2 has an escape for single bytes that Go lacks; JSON strings contain none.
    if "\\C" in text.replace("\\\\", ""):
        raise ValueError("error parsing regexp: invalid escape sequence: `\\C`")
    return _compile(text)


@lru_cache(maxsize=_CACHED_MAX)
def _compile(text: str) -> Pattern:
    try:
        return Pattern(re2.compile(text, options=_OPTIONS))
    except re2.error as error:
        raise ValueError(_reworded(error)) from error
    except UnicodeEncodeError as error:
        raise ValueError("error parsing regexp: invalid UTF-8") from error


def _reworded(error: Exception) -> str:
    raw = error.args[0] if error.args else b""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    words, _, about = text.partition(": ")
    for ours, theirs in _GO_MESSAGES.items():
        if text.startswith(ours):
            words, about = theirs, text.removeprefix(ours).removeprefix(": ")
            break
    return f"error parsing regexp: {words}" + (f": `{about}`" if about else "")


# Syntax that RE2 and the JSON schema library interpret the same way; see `is_plain`.
_PLAIN_ESCAPES: Final = frozenset("dDwW.-/\\+*?()[]{}|^$_:@,#%&=!~;'\"`ntr")
_PLAIN_IN_CLASS: Final = frozenset(" .,:;/@#%+*?(){}|^$_=!'\"`<>-")
_PLAIN_OUTSIDE: Final = frozenset(" .,:;/@#%+*?()|^$_=!'\"`<>-&~")


def is_plain(text: str) -> bool:
    """Report whether every engine without backreferences gives a pattern the same meaning.

    Engines differ only in rare syntax: non-ASCII spaces and word boundaries, nested classes, flags.
    Patterns with any of those are always matched by RE2.
    """
    at, size = 0, len(text)
    in_class = False
    while at < size:
        character = text[at]
        if character == "\\":
            if at + 1 == size or text[at + 1] not in _PLAIN_ESCAPES:
                return False
            at += 2
            continue
        if in_class:
            if character == "]":
                in_class = False
            elif not (character.isascii() and character.isalnum()) and (
                character not in _PLAIN_IN_CLASS or text.startswith("--", at)
            ):
                return False
        elif character == "[":
            in_class = True
            at += text.startswith("[^", at)
            if text.startswith("]", at + 1):
                return False
        elif character == "(" and text.startswith("(?", at):
            if not text.startswith("(?:", at):
                return False
            at += 2
        elif character == "{":
            end = text.find("}", at)
            low, comma, high = text[at + 1 : end].partition(",")
            if end < 0 or not low.isdecimal() or (comma and high and not high.isdecimal()):
                return False
            at = end
        elif not (character.isascii() and character.isalnum()) and character not in _PLAIN_OUTSIDE:
            return False
        at += 1
    return not in_class
