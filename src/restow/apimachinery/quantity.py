"""Quantities: numbers with a suffix, such as `500m`, `1Gi` and `2e3`.

Not here: which fields contain quantities, and arithmetic on their sums.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

# Kubernetes' own message.
WRONG_FORMAT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
# Longer numbers exceed 64 bits, and are slow to parse.
LENGTH_MAX: Final = 64
# Kubernetes rounds values finer than a nano; above 2^63-1 it caps only values with a binary suffix.
# Here values with too many digits are capped as well: their canonical form could be too long to
# parse.
_VALUE_MAX: Final = Fraction(2**63 - 1)
_DIGITS_MAX: Final = 48
_POWER_MAX: Final = LENGTH_MAX + 20
_EXPONENT_MAX: Final = 18
# The same few quantities are written repeatedly.
FORMS_KEPT_MAX: Final = 4096

_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,4}))?"
)
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = ("", *_BINARY)
_DECIMAL_SUFFIXES: Final = {0: "", **{power: suffix for suffix, power in _DECIMAL.items()}}


def is_quantity(text: str) -> bool:
    """Report whether a string is a valid quantity."""
    return len(text) <= LENGTH_MAX and _QUANTITY.fullmatch(text) is not None


def parse(text: str) -> Fraction:
    """Return the exact value, rounded up to a nano and capped if too large; ValueError if
    malformed.
    """
    return read(text)[0]


def is_canonical(text: str) -> bool:
    """Report whether a string is a quantity in canonical form."""
    # Long strings are not cached.
    return len(text) <= LENGTH_MAX and _is_canonical(text)


@lru_cache(FORMS_KEPT_MAX)
def _is_canonical(text: str) -> bool:
    return is_quantity(text) and canonical(text) == text


def canonical(text: str) -> str:
    """Return the canonical form of a quantity: `0.5` is `500m`, `1024Mi` is `1Gi`."""
    return write(*read(text))


def write(value: Fraction, family: str) -> str:
    """Format a value with the suffixes of a family."""
    # A fraction of a byte would be lost.
    if family == "binary" and abs(value) >= 1024 and value.denominator == 1:
        return _write_binary(int(value))
    power = -9
    number = int(value * 10**9)
    if number == 0:
        return "0"
    while number % 1000 == 0 and (power < _EXPONENT_MAX or family == "exponent"):
        number //= 1000
        power += 3
    if family == "exponent":
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIXES[power]}"


@lru_cache(FORMS_KEPT_MAX)  # exceptions are not cached, so long strings are not either
def read(text: str) -> tuple[Fraction, str]:
    """Parse a quantity; return its value and the family of its suffix, which `write` needs.

    Raises ValueError.
    """
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
        # The bounds prevent a short string from becoming a number with ten thousand digits.
        power = max(-LENGTH_MAX - 10, min(int(exponent), _POWER_MAX))
        value *= Fraction(10) ** power
    if value > _VALUE_MAX and (
        family == "binary" or int(exponent or 0) > _POWER_MAX or _digits(value) > _DIGITS_MAX
    ):
        value = _VALUE_MAX
    # Round up, away from zero, so that a tiny quantity does not become 0.
    nanos = -(-value * 10**9 // 1)
    value = Fraction(nanos, 10**9)
    return (-value if sign == "-" else value), family


def _digits(value: Fraction) -> int:
    """Return the number of significant digits."""
    return len(str(int(value * 10**9)).rstrip("0"))


def _write_binary(value: int) -> str:
    number, step = abs(value), 0
    while number % 1024 == 0 and step < len(_BINARY):
        number //= 1024
        step += 1
    return f"{'-' if value < 0 else ''}{number}{_BINARY_SUFFIXES[step]}"
