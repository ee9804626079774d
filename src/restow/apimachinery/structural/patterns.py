"""Regular expressions of users, by an engine whose time is linear in the text.

RE2 has the syntax of the reference's engine, and like it refuses what cannot be matched in linear
time: looking around and back-references. Programs are kept, and their size is bounded.

Not here: where patterns stand.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

# A longer one says nothing that anybody could read.
PATTERN_LENGTH_MAX: Final = 64 * 1024
# Memory of one compiled program; `x{1000}` inside `(…){1000}` asks for more, and is refused.
_PROGRAM_BYTES_MAX: Final = 8 << 20
_CACHED_MAX: Final = 4096

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _PROGRAM_BYTES_MAX

# The reference's engine says the same in other words.
_WORDS: Final = {
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
    """A compiled expression."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def found_in(self, text: str) -> bool:
        """Whether it matches somewhere; lone surrogates match nothing."""
        try:
            return self._compiled.search(text) is not None
        except UnicodeEncodeError:
            return False

    def first(self, text: str) -> str:
        """The first match, or nothing."""
        match = self._compiled.search(text)
        return match.group() if match is not None else ""

    def all(self, text: str, count_max: int = -1) -> list[str]:
        """All matches that do not overlap, or the first so many."""
        found: list[str] = []
        for match in self._compiled.finditer(text):
            if len(found) == count_max:
                break
            found.append(match.group())
        return found


def compile_pattern(text: str) -> Pattern:
    """The pattern; ValueError with the reference's words if it is none."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise ValueError(f"error parsing regexp: longer than {PATTERN_LENGTH_MAX} characters")
    # RE2 knows one more escape than the reference, for single bytes; JSON texts have none.
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
    told = error.args[0] if error.args else b""
    text = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
    words, _, about = text.partition(": ")
    for ours, theirs in _WORDS.items():
        if text.startswith(ours):
            words, about = theirs, text.removeprefix(ours).removeprefix(": ")
            break
    return f"error parsing regexp: {words}" + (f": `{about}`" if about else "")


# What both RE2 and the engine of the schema library read in the same way; see `is_plain`.
_PLAIN_ESCAPES: Final = frozenset("dDwW.-/\\+*?()[]{}|^$_:@,#%&=!~;'\"`ntr")
_PLAIN_IN_CLASS: Final = frozenset(" .,:;/@#%+*?(){}|^$_=!'\"`<>-")
_PLAIN_OUTSIDE: Final = frozenset(" .,:;/@#%+*?()|^$_=!'\"`<>-&~")


def is_plain(text: str) -> bool:
    """Whether a pattern means the same to every engine that has no back-references.

    They differ in unusual things only: spaces and word borders beyond ASCII, sets inside of sets,
    flags. A pattern with any of those is always left to RE2.
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
