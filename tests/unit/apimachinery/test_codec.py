"""JSON bodies: decoding, rejected input, and duplicate keys."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from restow.apimachinery import codec
from restow.apimachinery.status import (
    BadRequest,
    InternalError,
    RequestEntityTooLarge,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(
    ['"', '\\"', "a", "b", ":", "1" * 19]
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(texts, values, max_size=5)


@given(value=objects, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
@example(value={'"': "\\u0022"}, indent=None, ascii_only=True)
def test_decodes_any_object(value: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    """Any object is decoded unchanged, in any formatting, without false duplicates."""
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert codec.decode(body) == (value, ())
    assert codec.decode(codec.encode(value)) == (value, ())


# Objects as lists of pairs, so that keys can repeat. Quotes make counting hard.
pair_keys = st.sampled_from(["a", "b", '"', "c\\", ""])
pairs_of_pairs: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["x", '"', 1, None]),
    lambda inner: st.lists(st.tuples(pair_keys, inner), max_size=4),
    max_leaves=12,
)


def written(value: Any, *, spaced: bool, quotes_escaped: bool) -> str:
    if not isinstance(value, list):
        if quotes_escaped and isinstance(value, str):
            return '"' + "\\u0022".join(json.dumps(each)[1:-1] for each in value.split('"')) + '"'
        return json.dumps(value)
    colon, comma = (" : ", " , ") if spaced else (":", ",")
    options = {"spaced": spaced, "quotes_escaped": quotes_escaped}
    members = [f"{written(key, **options)}{colon}{written(each, **options)}" for key, each in value]
    return "{" + comma.join(members) + "}"


def naive_duplicates(value: Any, path: str = "") -> set[str]:
    if not isinstance(value, list):
        return set()
    found: set[str] = set()
    last = dict(value)
    for key, member in last.items():
        inner = f"{path}.{key}" if path else key
        if sum(1 for other, _ in value if other == key) > 1:
            found.add(inner)
        below = naive_duplicates(member)
        found |= {f"{inner}.{each}" for each in below}
    return found


@given(
    pairs=st.lists(st.tuples(pair_keys, pairs_of_pairs), max_size=4),
    spaced=st.booleans(),
    quotes_escaped=st.booleans(),
)
def test_duplicates_against_naive(pairs: Any, spaced: bool, quotes_escaped: bool) -> None:
    """All duplicate keys are found, and no others, even if escapes hide quotation marks."""
    body = written(pairs, spaced=spaced, quotes_escaped=quotes_escaped).encode()
    decoded = codec.decode(body)
    assert set(decoded.duplicates) == naive_duplicates(pairs)
    assert decoded.value == json.loads(body)
    assert codec.decode(body, find_duplicates=False).duplicates == ()


def test_duplicate_paths() -> None:
    """Paths contain object keys and list indexes, and their number is limited."""
    body = b'{"data":{"a":1,"a":2},"x":[1,[{"b":1,"b":2}],{"c":{"d":1,"d":2}}],"data2":{}}'
    assert codec.decode(body).duplicates == ("data.a", "x[1][0].b", "x[2].c.d")
    many = b'{"x":[' + b",".join([b'{"a":1,"a":2}'] * 10_000) + b"]}"
    assert len(codec.decode(many).duplicates) == codec.DUPLICATES_MAX


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"1",
        b'"a"',
        b"{",
        b"{}{}",
        b'{"a":1,}',
        b'{"a":01}',
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":9223372036854775808}',
        b'{"a":-9223372036854775809}',
        b'{"a":18446744073709551616}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":"\\ud800"}',
        b'{"\\udc00":1}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xc0\xaf"}',
        b'{"a":"\x00"}',
        b'{"a":"\n"}',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b'{"a":' * 241 + b"1" + b"}" * 241,
        b"[" * codec.VALUES_MAX,
        b'{"a":' * 90_000,
        b'{"a":' + b"[" * 240 + b"]" * 240 + b"}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_refused(body: bytes) -> None:
    """Input that is not a JSON object, or cannot be encoded again, is a 400."""
    with pytest.raises(BadRequest):
        codec.decode(body)


@pytest.mark.parametrize(
    ("body", "is_refused"),
    [
        (b"[" + b"[]," * 49_999 + b"[]]", False),
        (b"[" + b"[]," * 50_000 + b"[]]", True),
        (json.dumps({"a": ",[{" * 900_000}).encode(), False),
        (json.dumps({"a": '",' * 400_000, "b": "\\" * 500_000}).encode(), False),
        (b"[" * codec.BODY_SIZE_MAX, True),
        (json.dumps([{"a": '",\\"'}] * 50_001).encode(), True),
    ],
)
def test_the_number_of_values_is_limited(body: bytes, *, is_refused: bool) -> None:
    """A body with more values than the limit is a 413; commas and brackets in strings do not
    count."""
    if is_refused:
        with pytest.raises(RequestEntityTooLarge):
            codec.decode_value(body)
    else:
        assert codec.decode_value(body)[0] == json.loads(body)


def test_limits_are_reached() -> None:
    """The largest integers and the deepest objects allowed are decoded and can be wrapped."""
    body = b'{"a":9223372036854775807,"b":-9223372036854775808,"c":"99999999999999999999"}'
    assert codec.decode(body).value == json.loads(body)
    deep = b'{"a":' * (codec.DEPTH_MAX - 1) + b"{}" + b"}" * (codec.DEPTH_MAX - 1)
    value = codec.decode(deep).value
    assert not codec.exceeds_depth(value)
    assert codec.exceeds_depth(value, codec.DEPTH_MAX - 1)
    assert codec.encode({"items": [{"object": value}]})


def test_encoder_depth() -> None:
    """The depth check relies on the encoder's own limit."""
    value: Any = []
    for _ in range(codec.ENCODER_DEPTH_MAX - 1):
        value = [value]
    assert orjson.dumps(value)
    with pytest.raises(orjson.JSONEncodeError):
        orjson.dumps([value])
    with pytest.raises(InternalError):
        codec.encode([value])


@given(value=values, depth_max=st.integers(0, 5))
def test_depth_against_naive(value: Any, depth_max: int) -> None:
    """Depth is the number of containers around the innermost one, itself included."""

    def depth(each: Any) -> int:
        if isinstance(each, dict):
            return 1 + max(map(depth, each.values()), default=0)
        return 1 + max(map(depth, each), default=0) if isinstance(each, list) else 0

    assert codec.exceeds_depth(value, depth_max) == (depth(value) > depth_max)


def test_size() -> None:
    """A body above the limit is a 413, whatever its content."""
    with pytest.raises(RequestEntityTooLarge, match="limit is 10"):
        codec.decode(b'{"a": "bcd"}', size_max=10)


def test_takes_long() -> None:
    """YAML and long bodies are decoded in a thread."""
    assert codec.takes_long(b"a: 1", "application/yaml")
    assert not codec.takes_long(b"{}", "application/yaml")
    assert not codec.takes_long(b"{}")
    assert codec.takes_long(b"x" * (codec.LONG_BODY_SIZE + 1))


@given(body=st.binary(max_size=30))
def test_any_bytes(body: bytes) -> None:
    """Any input is an object that can be encoded again, or a 400."""
    try:
        value, _ = codec.decode(body)
    except BadRequest:
        return
    assert codec.decode(codec.encode(value)).value == value
