"""Quantities: parsing and the canonical form."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.quantity import canonical, is_quantity, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1000", "1k"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("100Ki", "100Ki"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("1200e3", "1200e3"),
        ("12E6", "12e6"),
        ("1E", "1E"),
        ("-3000", "-3k"),
        ("-2Ki", "-2Ki"),
        ("+1", "1"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("99999Ei", "9223372036854775807"),
        ("-20Ei", "-9223372036854775807"),
        ("8Ei", "9223372036854775807"),
        ("7Ei", "7Ei"),
        ("12E", "12E"),
        ("-12E", "-12E"),
        ("9223372036854775808", "9223372036854775808"),
        ("1e30", "1e30"),
        ("1e64", "10e63"),
        ("1.5e20", "150e18"),
        ("9" * 61 + "e8", "9223372036854775807"),
    ],
)
def test_equal_quantities_have_one_form(text: str, expected: str) -> None:
    """The canonical form has the largest suffix that leaves an integer."""
    assert canonical(text) == expected
    assert canonical(expected) == expected


@pytest.mark.parametrize(
    "text",
    ["", "1.2.3", "x", "1x", "1 ", "1ki", "Ki", ".", "1e", "1ee3", "--1", "9" * 100, "\u0661"],
)
def test_invalid_quantities(text: str) -> None:
    """Malformed and overlong strings are errors, not numbers."""
    assert not is_quantity(text)
    with pytest.raises(ValueError, match="quantities must match"):
        canonical(text)


@given(
    st.fractions(0, 2**50),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-2"]),
)
def test_the_canonical_form_keeps_the_value(number: Fraction, suffix: str) -> None:
    """Values are rounded once, when parsed, and always up."""
    text = f"{float(number):.6f}{suffix}"
    assert parse(canonical(text)) >= parse(text)
    assert canonical(canonical(text)) == canonical(text)
    if not suffix.endswith("i"):
        assert parse(canonical(text)) == parse(text)


def test_a_huge_exponent_costs_nothing() -> None:
    """A short string cannot become a number with thousands of digits."""
    assert parse("1e9999") == 2**63 - 1
    assert parse("1e-9999") == Fraction(1, 10**9)
