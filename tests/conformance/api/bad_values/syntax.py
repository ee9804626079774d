"""Bad syntax: values that no object can hold, and bodies that contain no object."""

from __future__ import annotations

import gzip

from tests.conformance.api.bad_values.goods import CONFIG_MAP
from tests.conformance.api.bad_values.matrix import Raw, Whole, codes_of

_MIB = 1024 * 1024


def _raw(name: str, token: bytes, in_yaml: bytes | None, code: int = 400, **but: int) -> Raw:
    if in_yaml is None:
        but["yaml"] = 0
    return Raw(f"value: {name}", token, in_yaml, codes_of(CONFIG_MAP, code, **but))


def _whole(
    name: str, body: bytes, in_yaml: bytes | None = None, code: int = 400, **but: int
) -> Whole:
    codes = codes_of(CONFIG_MAP, code, **but)
    return Whole(f"body: {name}", codes, body, body if in_yaml is None else in_yaml)


def _nested(depth: int, opening: bytes, closing: bytes) -> bytes:
    return opening * depth + b"1" + closing * depth


RAW = [
    _raw("NaN", b"NaN", b".nan"),
    _raw("Infinity", b"Infinity", b".inf"),
    _raw("minus Infinity", b"-Infinity", b"-.inf"),
    _raw("1e999", b"1e999", None),
    _raw("an integer of 65 bits", b"18446744073709551617", b"18446744073709551617"),
    _raw("an integer of 5000 digits", b"9" * 5000, b"9" * 5000),
    _raw("a number with a zero first", b"007", None),
    _raw("a number with a plus", b"+1", None),
    _raw("a number with a dot first", b".5", None),
    _raw("a number with a dot last", b"5.", None),
    _raw("a number in hexadecimal", b"0x10", None),
    _raw("a number with two exponents", b"1e5e5", None),
    _raw("a minus alone", b"-", None),
    _raw("a lone surrogate", b'"\\ud800"', b'"\\ud800"'),
    _raw("surrogates in the wrong order", b'"\\udc00\\ud800"', b'"\\udc00\\ud800"'),
    _raw("an escape cut off", b'"\\u12"', b'"\\u12"'),
    _raw("an unknown escape", b'"\\x41"', b'"\\q"'),
    _raw("broken UTF-8", b'"\xff"', b'"\xff"'),
    _raw("overlong UTF-8", b'"\xc0\xaf"', b'"\xc0\xaf"'),
    _raw("a surrogate in UTF-8", b'"\xed\xa0\x80"', b'"\xed\xa0\x80"'),
    _raw("beyond Unicode", b'"\xf4\x90\x80\x80"', b'"\xf4\x90\x80\x80"'),
    _raw("UTF-8 cut off", b'"\xe2\x82"', b'"\xe2\x82"'),
    _raw("a NUL byte in a text", b'"a\x00b"', b'"a\x00b"'),
    _raw("a control byte in a text", b'"a\x01b"', b'"a\x01b"'),
    _raw("a line break in a text", b'"a\nb"', None),
    _raw("a text without its end", b'"abc', b'"abc'),
    _raw("a text in single quotes", b"'abc'", None),
    _raw("no value", b"", None),
    _raw("a bare word", b"abc", None),
    _raw("True", b"True", b"True"),
    _raw("two values", b'"a" "b"', b'"a" "b"'),
    _raw("a comma too many", b'["a",]', None),
    _raw("a colon in a list", b'["a":1]', None),
    _raw("a list without its end", b'["a"', b'["a"'),
    _raw("brackets that do not match", b'["a"}', b'["a"}'),
    _raw("a key without quotes", b"{a:1}", None),
    _raw("a key of a number", b"{1:1}", None),
    _raw("an object without a colon", b'{"a"}', None),
    _raw("a comment", b'"a" /* b */', None),
    _raw("lists, 300 deep", _nested(300, b"[", b"]"), _nested(300, b"[", b"]")),
    _raw("lists, 20000 deep", _nested(20_000, b"[", b"]"), _nested(20_000, b"[", b"]")),
    _raw("objects, 300 deep", _nested(300, b'{"a":', b"}"), _nested(300, b'{"a": ', b"}")),
    _raw("objects, 20000 deep", _nested(20_000, b'{"a":', b"}"), _nested(20_000, b'{"a": ', b"}")),
    _raw(
        "20000 empty lists",
        b"[" + b"[]," * 20_000 + b"[]]",
        b"[" + b"[]," * 20_000 + b"[]]",
        merge=422,
        strategic=422,
        json=422,
    ),
    _raw("an alias", b"*a", b"*a"),
    _raw("an anchor", b"&a 1", b"&a 1\n  l: *a"),
    _raw("a tag", b"!!str 1", b"!!python/object/apply:os.system [x]"),
    _raw("a tag of bytes", b"!!binary aGk=", b"!!binary aGk="),
    _raw("a merge key", b'{"<<":*a}', b"{<<: *a}"),
    _raw("a list as a key", b'{["a"]:1}', b"{[a]: 1}"),
    _raw("a time", b"2020-01-01", None),
]

WHOLE = [
    _whole("nothing", b"", merge=415, strategic=415, json=415),
    _whole("spaces", b"   "),
    _whole("a list", b"[]", json=0),
    _whole("a list of numbers", b"[1]"),
    _whole("null", b"null"),
    _whole("a number", b"5"),
    _whole("a text", b'"x"'),
    _whole("true", b"true"),
    _whole("cut off", b'{"metadata":', b"metadata: {name:"),
    _whole("an end without a beginning", b"}", b"}"),
    _whole("two objects", b"{}{}", b"a: b\n---\nc: d\n"),
    _whole("a comma too many", b'{"metadata":{"name":"fresh"},}', b"{a: b,,}"),
    _whole("a comment after it", b'{"metadata":{"name":"fresh"}} // why', b"# why"),
    _whole("a mark of byte order", b'\xef\xbb\xbf{"data":[]}', b'\xef\xbb\xbf{"data":[]}'),
    _whole("UTF-16", '{"metadata":{"name":"fresh"}}'.encode("utf-16"), yaml=400),
    _whole("UTF-32", '{"metadata":{"name":"fresh"}}'.encode("utf-32"), yaml=400),
    _whole("NUL", b"\x00"),
    _whole("gzip", gzip.compress(b'{"metadata":{"name":"fresh"}}')),
    _whole("protobuf", b"k8s\x00\x0a\x00"),
    _whole("XML", b"<a/>", b"<a/>"),
    _whole("a form", b"a=b&c=d"),
    _whole("brackets, 20000 deep", b"[" * 20_000),
    _whole("braces, 20000 deep", b'{"a":' * 20_000),
    _whole("300 KiB of backslashes", b'{"a":"' + b"\\" * (300 * 1024) + b'"', yaml=413),
    _whole("more than 3 MiB", b'{"a":"' + b"x" * (3 * _MIB) + b'"}', code=413),
    _whole("tabs", b"\t\t{", b"a:\n\t- b"),
    _whole("an alias bomb", b"&a", b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n"),
]
