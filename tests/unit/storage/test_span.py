"""Spans of keys, compared with plain `startswith`."""

from hypothesis import example, given
from hypothesis import strategies as st

from restow.storage.interface import EVERYTHING, Key, Span

# Few characters, so that prefixes overlap; with those whose successor is not code + 1.
CHARACTERS = "/ab\x01\ud7ff\ue000\U0010fffe\U0010ffff"
texts = st.text(st.sampled_from(CHARACTERS), max_size=4)
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@given(prefix=texts | any_text, key=texts | any_text)
@example(prefix="/\ud7ff", key="/\ue000")
@example(prefix="\U0010ffff", key="\U0010ffff\U0010ffff")
def test_prefix(prefix: str, key: str) -> None:
    """A prefix's span holds exactly the texts that begin with it."""
    span = Span.of_prefix(prefix)
    assert (key in span) == key.startswith(prefix)
    assert prefix + key in span


@given(prefix=texts | any_text, key=texts | any_text)
def test_prefix_as_bytes(prefix: str, key: str) -> None:
    """The bounds can be encoded as UTF-8, and mean the same to a store that compares bytes."""
    span = Span.of_prefix(prefix)
    above = span.end is None or key.encode() < span.end.encode()
    assert (span.start.encode() <= key.encode() and above) == key.startswith(prefix)


@given(one=texts, other=texts)
def test_key(one: str, other: str) -> None:
    """A key's span holds that key alone."""
    assert (other in Span.of_key(Key(one))) == (one == other)


@given(key=texts | any_text)
def test_everything(key: str) -> None:
    """The span of everything, which is the span of the empty prefix, holds every key."""
    assert key in EVERYTHING
    assert key in Span.of_prefix("")


@given(prefix=texts, start=texts, key=texts)
def test_starting_at(prefix: str, start: str, key: str) -> None:
    """The rest of a span holds its keys from there on, also if the start is outside."""
    span = Span.of_prefix(prefix)
    assert (key in span.starting_at(start)) == (key in span and key >= start)


@given(prefix=texts, keys=st.lists(texts, unique=True, max_size=8))
def test_pages(prefix: str, keys: list[str]) -> None:
    """Continuing after the last key plus NUL skips nothing and repeats nothing."""
    span, seen = Span.of_prefix(prefix), list[str]()
    while found := [key for key in sorted(keys) if key in span]:
        seen.append(found[0])
        span = span.starting_at(found[0] + "\0")
    assert seen == [key for key in sorted(keys) if key.startswith(prefix)]
