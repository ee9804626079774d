"""The string formats that Kubernetes validates; other values of `format` have no effect.

Each check reports whether a string has the format. They are as lax or strict as those of
Kubernetes, which differ from the standards in places.

Not here: formats of numbers (`validate`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from restow.apimachinery.structural.patterns import compile_pattern
from restow.apimachinery.type_values import parse_duration

# No valid value is longer; this bounds the work of the checks below.
FORMATTED_LENGTH_MAX: Final = 64 * 1024

FormatCheck = Callable[[str], bool]


def format_check(name: str) -> FormatCheck | None:
    """Return the check of a format, in any spelling that Kubernetes treats as equal; None if
    unknown.
    """
    return _CHECKS.get(name.replace("-", ""))


def _uuid(version: str, variant: str) -> FormatCheck:
    hexadecimal = "[0-9a-f]"
    matches = re.compile(
        rf"{hexadecimal}{{8}}-?{hexadecimal}{{4}}-?{version}{hexadecimal}{{3}}-?"
        rf"{variant}{hexadecimal}{{3}}-?{hexadecimal}{{12}}",
        re.IGNORECASE | re.ASCII,
    ).fullmatch
    return lambda text: matches(text) is not None


def _is_ipv4(text: str) -> bool:
    # Leading zeros are read as decimal, as old clients wrote them. An IPv6 address that ends in an
    # IPv4 one contains a dot as well, and is accepted.
    parts = text.split(".")
    if len(parts) == 4 and all(part.isdecimal() and part.isascii() for part in parts):
        return all(len(part) < 20 and int(part) < 256 for part in parts)
    return "." in text and _is_ipv6(text)


def _is_ipv6(text: str) -> bool:
    if ":" not in text or "%" in text:
        return False
    try:
        IPv6Address(text)
    except (AddressValueError, ValueError):
        return False
    return True


def _is_cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not slash or not length.isdecimal() or not length.isascii() or len(length) > 3:
        return False
    if ":" in address:
        return _is_ipv6(address) and int(length) <= 128
    return _is_ipv4(address) and int(length) <= 32


_MAC: Final = re.compile(
    r"(?:[0-9a-fA-F]{2}([:-])[0-9a-fA-F]{2}(?:\1[0-9a-fA-F]{2}){4}(?:(?:\1[0-9a-fA-F]{2}){2}"
    r"(?:(?:\1[0-9a-fA-F]{2}){12})?)?"
    r"|[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4}){2}(?:\.[0-9a-fA-F]{4}(?:(?:\.[0-9a-fA-F]{4}){6})?)?)"
).fullmatch


def _is_uri(text: str) -> bool:
    """Accept what Go's `url.ParseRequestURI` accepts: an absolute URI, or a path starting with
    `/`.
    """
    if any(ord(character) < 0x20 or character in "\x7f " for character in text):
        return False
    if not _PERCENT(text):
        return False
    if text.startswith("/"):
        return True
    scheme, colon, rest = text.partition(":")
    return bool(colon and rest and _SCHEME(scheme))


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*").fullmatch
_PERCENT: Final = re.compile(r"[^%]*(?:%[0-9A-Fa-f]{2}[^%]*)*").fullmatch


def _is_email(text: str) -> bool:
    """Accept an address, alone or in `<…>` after a name."""
    if text.endswith(">") and "<" in text:
        text = text[text.rindex("<") + 1 : -1]
    local, at, domain = text.rpartition("@")
    if not at or not domain or not local:
        return False
    quoted = len(local) > 1 and local[0] == local[-1] == '"'
    return bool((quoted or _ATOMS(local)) and (_ATOMS(domain) or domain[0] + domain[-1] == "[]"))


_ATOMS: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]+"
    r"(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]+)*"
).fullmatch


def _is_hostname(text: str) -> bool:
    if len(text.encode(errors="replace")) > 255:
        return False
    return all(
        len(part.encode(errors="replace")) <= 63 for part in text.split(".")
    ) and compile_pattern(_HOSTNAME).found_in(text)


_HOST_LETTER: Final = r"[a-zA-Z0-9\p{S}\p{L}]"
_HOSTNAME: Final = (
    rf"^({_HOST_LETTER}((-?{_HOST_LETTER}{{0,62}})?)"
    rf"|({_HOST_LETTER}(([a-zA-Z0-9\-\p{{S}}\p{{L}}]{{0,61}}{_HOST_LETTER})?)(\.))"
    r"{1,}([a-zA-Z\p{L}]){2,63})$"
)


def _is_date(text: str) -> bool:
    if not _DATE(text):
        return False
    try:
        # Kubernetes accepts the year 0, as a leap year.
        date.fromisoformat("0004" + text[4:] if text.startswith("0000") else text)
    except ValueError:
        return False
    return True


_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_TIME_OF_DAY: Final = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})"
).fullmatch


def _is_date_time(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    match = _TIME_OF_DAY(rest.partition("t")[0])
    if match is None or not _is_date(day):
        return False
    hour, minute, second = match.groups()
    return hour <= "23" and minute <= "59" and second <= "59"


_LONG_PART: Final = re.compile(r"([0-9]+)\s*([A-Za-zµ]+)").finditer
_SECOND: Final = 1_000_000_000
# Names of units, and nanoseconds. Longer words that start with the last name match as well.
_LONG_UNITS: Final = (
    (("ns", "nano"), 1),
    (("us", "µs", "micro"), 1_000),
    (("ms", "milli"), 1_000_000),
    (("s", "sec"), _SECOND),
    (("m", "min"), 60 * _SECOND),
    (("h", "hr", "hour"), 3_600 * _SECOND),
    (("d", "day"), 86_400 * _SECOND),
    (("w", "wk", "week"), 604_800 * _SECOND),
)
_DURATION_LENGTH_MAX: Final = 1024
_DURATION_DIGITS_MAX: Final = 18


def parse_long_duration(text: str) -> int:
    """Parse a duration in Go's format or in words, such as `2 weeks`, into nanoseconds.

    Raises ValueError if it is invalid.
    """
    if len(text) > _DURATION_LENGTH_MAX:
        raise ValueError("the duration is too long")
    try:
        return parse_duration(text)
    except ValueError:
        pass
    total, any_found = 0, False
    for match in _LONG_PART(text):
        number, unit = match.group(1), match.group(2).lower()
        if len(number) > _DURATION_DIGITS_MAX:
            raise ValueError(f"unable to parse {text} as duration")
        for names, nanoseconds in _LONG_UNITS:
            if unit in names or unit.startswith(names[-1]):
                total += int(number) * nanoseconds
                any_found = True
    if not any_found:
        raise ValueError(f"unable to parse {text} as duration")
    return total


def _is_duration(text: str) -> bool:
    try:
        parse_long_duration(text)
    except ValueError:
        return False
    return True


def _is_isbn(text: str) -> bool:
    return _is_isbn10(text) or _is_isbn13(text)


def _digits(text: str) -> str:
    return re.sub(r"[\s-]+", "", text)


def _is_isbn10(text: str) -> bool:
    digits = _digits(text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return (
        sum((place + 1) * (10 if c == "X" else int(c)) for place, c in enumerate(digits)) % 11 == 0
    )


def _is_isbn13(text: str) -> bool:
    digits = _digits(text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum((3 if place % 2 else 1) * int(c) for place, c in enumerate(digits)) % 10 == 0


_CARD: Final = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
).fullmatch


def _is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD(digits):
        return False
    doubled = (int(c) * (2 if place % 2 else 1) for place, c in enumerate(reversed(digits)))
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _matches(pattern: str) -> FormatCheck:
    matches = re.compile(pattern, re.ASCII).fullmatch
    return lambda text: matches(text) is not None


_SHORT_NAME: Final = r"[a-z0-9]+(?:-+[a-z0-9]+)*"
_COLOUR: Final = r"(?:0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])"


def _is_short_name(text: str) -> bool:
    return len(text) <= 63 and re.fullmatch(_SHORT_NAME, text) is not None


def _is_long_name(text: str) -> bool:
    return (
        len(text) <= 253 and re.fullmatch(rf"{_SHORT_NAME}(?:\.{_SHORT_NAME})*", text) is not None
    )


def _bounded(check: FormatCheck) -> FormatCheck:
    return lambda text: len(text) <= FORMATTED_LENGTH_MAX and check(text)


_CHECKS: Final[dict[str, FormatCheck]] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "uri": _is_uri,
    "email": _bounded(_is_email),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": lambda text: _MAC(text) is not None,
    "uuid": _uuid("[0-9a-f]", "[0-9a-f]"),
    "uuid3": _uuid("3", "[0-9a-f]"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
    "isbn": _bounded(_is_isbn),
    "isbn10": _bounded(_is_isbn10),
    "isbn13": _bounded(_is_isbn13),
    "creditcard": _bounded(_is_credit_card),
    "ssn": _matches(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "hexcolor": _matches(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matches(rf"rgb\(\s*{_COLOUR}\s*,\s*{_COLOUR}\s*,\s*{_COLOUR}\s*\)"),
    "byte": _matches(
        r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
    ),
    "password": lambda _: True,
    "date": _is_date,
    "duration": _is_duration,
    "datetime": _is_date_time,
    "k8sshortname": _is_short_name,
    "k8slongname": _is_long_name,
}
