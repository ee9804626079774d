"""YAML bodies: values as in JSON, and limits while parsing."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery import codec, yaml_codec
from restow.apimachinery.status import BadRequest, RequestEntityTooLarge, StatusError

SIZE = yaml_codec.YAML_SIZE_MAX


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("on", "on"),
        ("n", "n"),
        ("1", 1),
        ("-7", -7),
        ("+7", 7),
        ("0", 0),
        ("0644", 420),
        ("0o644", 420),
        ("0x1F", 31),
        ("0b11", 3),
        ("0899", 899.0),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-1.5e-3", -0.0015),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2001-01-01", "2001-01-01"),
        ("1.2.3", "1.2.3"),
        ("-", ["x"]),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ('!!int "1"', 1),
        ("!!float 1", 1.0),
        ("!!null ''", None),
        ("! x", "x"),
        ("|\n  x\n  y\n", "x\ny\n"),
        (">-\n  x\n  y\n", "x y"),
        ("9223372036854775807", 2**63 - 1),
        ("{}", {}),
        ("[1, {b: c}]", [1, {"b": "c"}]),
        ("&anchor 1", 1),
    ],
)
def test_values(text: str, value: Any) -> None:
    """Plain scalars have their JSON meaning, and are strings otherwise."""
    body = f"a: {text}" if text != "-" else "a:\n- x"
    assert yaml_codec.decode(body.encode()) == ({"a": value}, ())


def test_keys() -> None:
    """Keys are strings, whatever they look like."""
    body = b'1: a\ntrue: b\n1.5: c\n"x": d\n? y\n: e\n0x10: f'
    assert list(yaml_codec.decode(body).value) == ["1", "true", "1.5", "x", "y", "16"]


def test_duplicates() -> None:
    """Duplicate keys are reported with their paths, and the last one wins."""
    body = b"a: 1\nb:\n- x\n- c: 1\n  c: 2\n  d: {e: 1, e: 2, e: 3}\na: 2\n"
    value, duplicates = yaml_codec.decode(body)
    assert value == {"a": 2, "b": ["x", {"c": 2, "d": {"e": 3}}]}
    assert duplicates == ("b[1].c", "b[1].d.e", "a")


def test_one_document() -> None:
    """Document markers, directives and a byte order mark are accepted."""
    assert yaml_codec.decode(b"%YAML 1.1\n---\na: 1\n...\n").value == {"a": 1}
    assert yaml_codec.decode(b"\xef\xbb\xbfa: 1").value == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"# nothing\n",
        b"- a\n",
        b"text",
        b"a: 1\n---\nb: 2\n",
        b"a: &x [1]\nb: *x\n",
        b"<<: {a: 1}\n",
        b"[a]: b\n",
        b"{a: b}: c\n",
        b"~: a\n",
        b"a: !!binary aGk=\n",
        b"a: !!set {b}\n",
        b"a: !!python/object/apply:os.system [x]\n",
        b"a: !mine 1\n",
        b"a: !mine [1]\n",
        b"a: !!int x\n",
        b"a: !!map [1]\n",
        b"a: .nan\n",
        b"a: -.inf\n",
        b"a: 1e400\n",
        b"a: 9223372036854775808\n",
        b"a: 0xFFFFFFFFFFFFFFFF\n",
        b"a: " + b"9" * 5000,
        b"a: [1\n",
        b'a: "\\ud800"\n',
        b"a: \x00\n",
        b"a: \xff\n",
        "a: 1".encode("utf-16"),
        b"\ta: 1\n",
        b"a: b: c\n",
        b"a: " + b"[" * 240 + b"]" * 240,
        b"{" * 1000,
    ],
    ids=lambda body: repr(body[:30]),
)
def test_refused(body: bytes) -> None:
    """Values that JSON cannot represent, and malicious input, are a 400."""
    with pytest.raises(BadRequest):
        yaml_codec.decode(body)


def test_alias_bomb() -> None:
    """Parsing stops at the first alias."""
    lines = [b"a0: &a0 [x, x]"]
    lines += [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)]
    with pytest.raises(BadRequest, match="alias"):
        yaml_codec.decode(b"\n".join(lines))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * SIZE,
        b"{" * SIZE,
        b"- " * (SIZE // 2),
        b"? " * (SIZE // 2),
        b"a: " * (SIZE // 3),
        b"[a: " * (SIZE // 4),
        b"!" * SIZE,
        b"&" * SIZE,
        b"%" * SIZE,
        b'"' + b'\\"' * (SIZE // 2 - 1) + b'"',
        b"'" * SIZE,
        b"#\n" * (SIZE // 2),
        b"[" * 230 + b"a," * (SIZE // 2 - 500) + b"]" * 230,
        b"".join(b"%%TAG !%x! b\n" % number for number in range(15_000)) + b"--- a",
        b"".join(b" " * depth + b"a:\n" for depth in range(700)),
    ],
    ids=lambda body: repr(body[:12]),
)
def test_slow_bodies(body: bytes) -> None:
    """Input built for slow scanning is rejected; the test's timeout limits the time."""
    with pytest.raises(StatusError) as caught:
        yaml_codec.decode(body[:SIZE])
    assert caught.value.code in (400, 413)


def test_limits() -> None:
    """A body with too many bytes or values is a 413."""
    with pytest.raises(RequestEntityTooLarge):
        yaml_codec.decode(b"a: " + b"x" * SIZE)
    with pytest.raises(RequestEntityTooLarge):
        yaml_codec.decode(b"a: b", size_max=3)
    with pytest.raises(RequestEntityTooLarge):
        yaml_codec.decode(b"a: [" + b"1," * (codec.VALUES_MAX + 1) + b"]")


def test_json_is_yaml() -> None:
    """JSON is decoded as JSON: above YAML's limit too, and with its duplicate keys."""
    large = {"a": "x" * SIZE}
    assert yaml_codec.decode(json.dumps(large).encode()).value == large
    assert yaml_codec.decode(b'{"a":1,"a":2}').duplicates == ("a",)
    assert yaml_codec.decode(b"{a: 1, 'b': [c]}").value == {"a": 1, "b": ["c"]}


# PyYAML's emitter allows U+0085 in quotes, where every parser reads a line break.
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\x85")
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(letters, max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(letters, max_size=4), inner)
    ),
    max_leaves=12,
)


@given(value=values, flow=st.booleans())
def test_round_trip(value: Any, flow: bool) -> None:
    """Encoding and decoding any JSON value returns it unchanged."""
    body = yaml.safe_dump({"a": value}, default_flow_style=flow, allow_unicode=True)
    assert yaml_codec.decode(body.encode()).value == {"a": value}


@given(body=st.text(st.sampled_from("ab:-[]{}'\"\n #&*!|>%1.?,"), max_size=24))
def test_any_text(body: str) -> None:
    """Any string is an object that JSON can represent, or a 400."""
    try:
        value, _ = yaml_codec.decode(body.encode())
    except BadRequest:
        return
    assert codec.decode(codec.encode(value)).value == value
