"""Quantities: numbers with a suffix, such as `500m`, `1Gi` and `2e3`.

Not here: which fields hold them, and arithmetic on sums of them.
"""

import re
from fractions import Fraction
from typing import Final

# The text that clients know; upstream's own message.
WRONG_FORMAT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
# Longer numbers say nothing that fits into 64 bits, and cost time.
LENGTH_MAX: Final = 64
# Beyond 2^63-1, and finer than a nano, upstream rounds.
_VALUE_MAX: Final = Fraction(2**63 - 1)
_EXPONENT_MAX: Final = 18

_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,4}))?"
)
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = ("", *_BINARY)
_DECIMAL_SUFFIXES: Final = {0: "", **{power: suffix for suffix, power in _DECIMAL.items()}}


def is_quantity(text: str) -> bool:
    """Whether a text can be read as a quantity."""
    return len(text) <= LENGTH_MAX and _QUANTITY.fullmatch(text) is not None


def parse(text: str) -> Fraction:
    """The exact value, cut to what 64 bits and nano precision hold; ValueError if malformed."""
    return _parse(text)[0]


def canonical(text: str) -> str:
    """The one form of all equal texts of a family: `0.5` is `500m`, `1024Mi` is `1Gi`."""
    value, family = _parse(text)
    if family == "binary" and abs(value) >= 1024:
        return _write_binary(value)
    power = -9
    number = int(value * 10**9)
    if number == 0:
        return "0"
    while number % 1000 == 0 and power < _EXPONENT_MAX:
        number //= 1000
        power += 3
    if family == "exponent":
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIXES[power]}"


def _parse(text: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text) if len(text) <= LENGTH_MAX else None
    if match is None:
        raise ValueError(WRONG_FORMAT)
    sign, digits, binary, decimal, exponent = match.groups()
    value = Fraction("0" + digits + "0" if "." in digits else digits)
    family = "decimal"
    if binary:
        family = "binary"
        value *= 1024 ** _BINARY[binary]
    elif decimal:
        value *= Fraction(10) ** _DECIMAL[decimal]
    elif exponent:
        family = "exponent"
        # The bounds keep a short text from making a number of ten thousand digits.
        power = max(-LENGTH_MAX - 10, min(int(exponent), LENGTH_MAX + 20))
        value *= Fraction(10) ** power
    value = min(value, _VALUE_MAX)
    # Up, away from zero: a tiny wish is not no wish.
    nanos = -(-value * 10**9 // 1)
    value = Fraction(nanos, 10**9)
    return (-value if sign == "-" else value), family


def _write_binary(value: Fraction) -> str:
    number = -(-abs(value) // 1)
    step = 0
    while number % 1024 == 0 and step < len(_BINARY):
        number //= 1024
        step += 1
    return f"{'-' if value < 0 else ''}{number}{_BINARY_SUFFIXES[step]}"
