"""What may be told of a file that holds secrets, when something in it is wrong.

A slip of the hand makes a secret the name of a field, a tag, or the value of another field; and
what is told stands in logs. So names and values are shown only if they can be no secret: if they
are shorter than any, or look as only names of resources do. Below a provider, no name of a field is
shown that is not one of ours.

Pure. Not here: what is wrong (`configuration`).
"""

from __future__ import annotations

import re
from typing import Final

SHOWN_LENGTH_MAX: Final = 15
"""A secret of 16 bytes has 22 characters of base64; this is shorter than one of 12 bytes."""
NOT_SHOWN: Final = "(not shown: it may be a secret)"

_RESOURCE: Final = re.compile(r"[a-z*-]{1,40}(\.([a-z0-9*-]{1,40}\.)*[a-z0-9*-]{0,40})?")
_INSIDE: Final = re.compile(r"\.providers\[\d+\]\.")
_LINE: Final = re.compile(r"line \d+: ")
_FIELDS: Final = r"\.(keys(\[\d+\](\.(name|secret))?)?|apiVersion|name|cachesize|endpoint|timeout)"
_PROVIDER: Final = rf"(\.(aescbc|aesgcm|secretbox|kms|identity)({_FIELDS})?)?"
_BLOCK: Final = rf"(\.(resources(\[\d+\])?|providers(\[\d+\]{_PROVIDER})?))?"
_PATH: Final = re.compile(rf"(apiVersion|kind|resources(\[\d+\]{_BLOCK})?)?")
# What the reader of YAML says without a word of the file in it. What stands behind "not YAML" comes
# from the scanner, whose texts are fixed.
_HARMLESS: Final = re.compile(
    r"the body is not UTF-8"
    r"|the body is not YAML: (line \d+: )?[A-Za-z ,:;'\"%#<>-]+"
    r"|the body must hold a JSON object"
    r"|(line \d+: )?(an alias|a second document|a merge key|a key that is null"
    r"|a key that is not a scalar) is not accepted in the YAML of a request"
    r"|the body has more than \d+ values"
    r"|exceeded max depth: nested more than \d+ levels deep"
    r"|Request entity too large: limit is \d+"
)


def shown(value: object) -> str:
    """A value, if it can be no secret."""
    text = str(value)
    return text if len(text) <= SHOWN_LENGTH_MAX and text.isprintable() else NOT_SHOWN


def shown_resource(text: str) -> str:
    """What stands in the place of a resource, if it can be no secret."""
    return text if _RESOURCE.fullmatch(text) else shown(text)


def shown_field(path: str, name: str) -> str:
    """The path of a field that should not be there."""
    # A name that is a secret in part is longer than one, too: `secret:c2Vj…`.
    last = NOT_SHOWN if _INSIDE.search(path) else shown(name)
    return f"{path}.{last}" if path else last


def shown_path(path: str) -> str:
    """A path as the reader of the file gives it, as far as it consists of our own words."""
    if _PATH.fullmatch(path):
        return path
    known = _PATH.match(path)
    begin = known[0] if known is not None else ""
    return f"{begin}.{NOT_SHOWN}" if begin else NOT_SHOWN


def shown_problem(text: str) -> str:
    """What the reader of YAML or JSON says, without anything that it quotes from the file."""
    if _HARMLESS.fullmatch(text):
        return text.replace("the body", "the file").replace(" in the YAML of a request", "")
    line = _LINE.search(text)
    where = line[0] if line is not None else ""
    return f"{where}a value or a tag is not accepted {NOT_SHOWN}"
