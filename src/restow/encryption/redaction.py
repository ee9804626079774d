"""Removes secrets from error messages about a file that contains some.

By mistake a secret may be used as a field name, a tag, or the value of another field; and messages
are logged. So names and values are shown only if they cannot be a secret: if they are shorter than
any secret, or have a form that only resource names have. Below a provider, unknown field names are
never shown.

Pure. Not here: finding the problems (`configuration`).
"""

from __future__ import annotations

import re
from typing import Final

SHOWN_LENGTH_MAX: Final = 15
"""A secret of 16 bytes has 22 base64 characters; this is shorter than one of 12 bytes."""
NOT_SHOWN: Final = "(not shown: it may be a secret)"

_RESOURCE: Final = re.compile(r"[a-z*-]{1,40}(\.([a-z0-9*-]{1,40}\.)*[a-z0-9*-]{0,40})?")
_INSIDE: Final = re.compile(r"\.providers\[\d+\]\.")
_LINE: Final = re.compile(r"line \d+: ")
_FIELDS: Final = r"\.(keys(\[\d+\](\.(name|secret))?)?|apiVersion|name|cachesize|endpoint|timeout)"
_PROVIDER: Final = rf"(\.(aescbc|aesgcm|secretbox|kms|identity)({_FIELDS})?)?"
_BLOCK: Final = rf"(\.(resources(\[\d+\])?|providers(\[\d+\]{_PROVIDER})?))?"
_PATH: Final = re.compile(rf"(apiVersion|kind|resources(\[\d+\]{_BLOCK})?)?")
# Messages of the YAML reader that quote nothing from the file. The part after "not YAML" is from
# the scanner, whose messages are fixed.
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
    """Return the value if it cannot be a secret."""
    text = str(value)
    return text if len(text) <= SHOWN_LENGTH_MAX and text.isprintable() else NOT_SHOWN


def shown_resource(text: str) -> str:
    """Return the text given as a resource if it cannot be a secret."""
    return text if _RESOURCE.fullmatch(text) else shown(text)


def shown_field(path: str, name: str) -> str:
    """Return the path of an unknown field, redacted if necessary."""
    # A name that contains a secret is longer than the secret, too: `secret:c2Vj…`.
    last = NOT_SHOWN if _INSIDE.search(path) else shown(name)
    return f"{path}.{last}" if path else last


def shown_path(path: str) -> str:
    """Return a path of the file reader, as far as it consists of known field names."""
    if _PATH.fullmatch(path):
        return path
    known = _PATH.match(path)
    begin = known[0] if known is not None else ""
    return f"{begin}.{NOT_SHOWN}" if begin else NOT_SHOWN


def shown_problem(text: str) -> str:
    """Return a message of the YAML or JSON reader without anything that it quotes from the file."""
    if _HARMLESS.fullmatch(text):
        return text.replace("the body", "the file").replace(" in the YAML of a request", "")
    line = _LINE.search(text)
    where = line[0] if line is not None else ""
    return f"{where}a value or a tag is not accepted {NOT_SHOWN}"
