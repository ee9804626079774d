"""The parts of events: audit IDs, addresses, times, and redaction."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Runtime, SimulatedClock
from restow.audit.event_parts import (
    AGENT_LENGTH_MAX,
    About,
    Stamps,
    annotations_part,
    encode,
    origin_part,
    parts_of,
    source_addresses,
    user_part,
)
from restow.audit.redaction import (
    URI_LENGTH_MAX,
    holds_secrets,
    redacted_uri,
    without_managed_fields,
)
from restow.httpserver import Headers, HttpRequest, Peer
from restow.request.audit_ids import AuditIds, id_in, quoted_line
from restow.request.context import User
from restow.request.request_info import parse_request

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def request_of(*lines: tuple[str, str]) -> HttpRequest:
    return HttpRequest("GET", "/", "", Headers(lines), b"", Peer(1), 0.0)


def test_own_ids() -> None:
    """Audit IDs are unique UUIDs, also across servers."""
    made = [AuditIds(Runtime.simulated(seed).ids) for seed in (1, 2)]
    lines = [ids.line() for ids in made for _ in range(5000)]
    assert len(set(lines)) == 10_000
    for line in lines:
        assert line.startswith(b"Audit-Id: ")
        assert line.endswith(b"\r\n")
        assert UUID.fullmatch(id_in(line).decode())


@pytest.mark.parametrize("said", ["a", "0" * 64, 'a"b\\c', "!~"])
def test_echoed(said: str) -> None:
    """An audit ID from the client is kept, and is one JSON string in the log."""
    line = AuditIds(Runtime.simulated(1).ids).line_for(request_of(("audit-id", said)))
    assert line == b"Audit-Id: %b\r\n" % said.encode()
    assert orjson.loads(b'"%b"' % id_in(quoted_line(line))) == said


@pytest.mark.parametrize("said", ["", "a b", "a\tb", "\x01", "ä", "\x7f", "a\r\nX: y"])
def test_not_echoed(said: str) -> None:
    """A client value that is not a plain ID is replaced by an ID of the server."""
    line = AuditIds(Runtime.simulated(1).ids).line_for(request_of(("audit-id", said)))
    assert UUID.fullmatch(id_in(line).decode())


def test_a_long_id_is_truncated() -> None:
    """An audit ID has at most 64 characters."""
    line = AuditIds(Runtime.simulated(1).ids).line_for(request_of(("audit-id", "x" * 65)))
    assert id_in(line) == b"x" * 64


@given(st.text(st.characters(codec=None)) | st.dictionaries(st.text(), st.text()))
def test_encoded_in_one_line(value: Any) -> None:
    """Any string is encoded as ASCII without control characters, and decodes to the same value."""
    found = encode(value)
    assert re.fullmatch(rb"[ -\x7f]*", found)
    if not isinstance(value, str) or not re.search("[\ud800-\udfff]", value):
        assert orjson.loads(found) == value


def test_too_deep_to_encode() -> None:
    """Too deep nesting raises an error."""
    value: Any = []
    for _ in range(500):
        value = [value]
    with pytest.raises(ValueError, match="encoded"):
        encode(value)


ADDRESSES = [
    ((), ["10.0.0.1"]),
    ((("x-forwarded-for", "1.2.3.4, bogus, 5.6.7.8"),), ["1.2.3.4", "5.6.7.8", "10.0.0.1"]),
    (
        (("x-forwarded-for", "1.2.3.4"), ("x-real-ip", "9.9.9.9")),
        ["1.2.3.4", "9.9.9.9", "10.0.0.1"],
    ),
    ((("x-forwarded-for", "1.2.3.4"), ("x-real-ip", "1.2.3.4")), ["1.2.3.4", "10.0.0.1"]),
    ((("x-forwarded-for", "1.2.3.4, 10.0.0.1"),), ["1.2.3.4", "10.0.0.1"]),
    (
        (("x-forwarded-for", "::1"), ("x-forwarded-for", "2001:DB8::0")),
        ["::1", "2001:db8::", "10.0.0.1"],
    ),
    ((("x-real-ip", "nobody"),), ["10.0.0.1"]),
]


@pytest.mark.parametrize(("lines", "wanted"), ADDRESSES)
def test_addresses(lines: tuple[tuple[str, str], ...], wanted: list[str]) -> None:
    """Addresses come from the proxy headers and end with that of the connection."""
    assert source_addresses(Headers(lines), "10.0.0.1") == wanted


def test_addresses_are_bounded() -> None:
    """The number of addresses is limited; the nearest ones are kept."""
    said = ", ".join(f"1.1.{n // 250}.{n % 250}" for n in range(1000))
    found = source_addresses(Headers([("x-forwarded-for", said)]), "10.0.0.1")
    assert len(found) == 17
    assert found[-2:] == ["1.1.3.249", "10.0.0.1"]


def test_agent() -> None:
    """A long user agent is truncated, as in Kubernetes; a missing one is omitted."""
    long = origin_part(Headers([("user-agent", "x" * 2000)]), Peer(1, address="::1"))
    found = orjson.loads(b"{%b}" % long[1:])
    assert found == {
        "sourceIPs": ["::1"],
        "userAgent": "x" * AGENT_LENGTH_MAX + "...TRUNCATED",
    }
    assert b"userAgent" not in origin_part(Headers([]), Peer(1))


def test_user() -> None:
    """A user is encoded with the fields that are set; an unknown user is empty."""
    user = User("jane", ("a", "b"), "u1", (("k", ("v", "w")),))
    assert orjson.loads(user_part(user)) == {
        "username": "jane",
        "uid": "u1",
        "groups": ["a", "b"],
        "extra": {"k": ["v", "w"]},
    }
    assert user_part(User("x")) == b'{"username":"x"}'
    assert user_part(None) == b"{}"


def test_object() -> None:
    """The objectRef has the fields of path and body, without empty ones."""
    info = parse_request("PUT", "/apis/apps/v1/namespaces/a/deployments/d/scale")
    assert orjson.loads(About(info).part(info.name, "u", "7")[13:]) == {
        "resource": "deployments",
        "namespace": "a",
        "name": "d",
        "uid": "u",
        "apiGroup": "apps",
        "apiVersion": "v1",
        "resourceVersion": "7",
        "subresource": "scale",
    }
    assert About(parse_request("GET", "/version")).part("x") == b""
    odd = About(parse_request("GET", "/api/v1/pods")).part('a"\n')
    assert orjson.loads(odd[13:]) == {"resource": "pods", "name": 'a"\n', "apiVersion": "v1"}


def test_annotations() -> None:
    """Annotations contain the decision and additional ones, or are omitted."""
    assert annotations_part(is_allowed=None) == b"}\n"
    found = annotations_part(is_allowed=False, reason="no", extra={"a/b": "c\n"})
    assert found.endswith(b"}\n")
    assert orjson.loads(found[len(b',"annotations":') : -2]) == {
        "authorization.k8s.io/decision": "forbid",
        "authorization.k8s.io/reason": "no",
        "a/b": "c\n",
    }


async def test_stamps() -> None:
    """Times have microseconds, also across seconds, and follow the wall clock."""
    clock = SimulatedClock(datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC))
    stamps = Stamps(clock)

    def found(received: float, now: float) -> list[str]:
        event = (parts_of(b"{", (b'"a":', b"1"), b"}"), b"", received, now)
        return list(orjson.loads(stamps.encode_events([event])).values())[1:]

    assert found(0.0, 0.5) == ["2026-01-02T03:04:05.250000Z", "2026-01-02T03:04:05.750000Z"]
    assert found(0.5, 1.0) == ["2026-01-02T03:04:05.750000Z", "2026-01-02T03:04:06.250000Z"]
    assert found(0.9999, 1.0001) == ["2026-01-02T03:04:06.249900Z", "2026-01-02T03:04:06.250100Z"]
    await clock.advance(100)
    clock.skew_seconds = 3600
    assert found(99.75, 100.0) == ["2026-01-02T04:05:45.000000Z", "2026-01-02T04:05:45.250000Z"]


URIS = [
    ("/a", "", "/a"),
    ("/a", "watch=1&limit=5", "/a?watch=1&limit=5"),
    ("/a", "labelSelector=token%3Dx", "/a?labelSelector=token%3Dx"),
    ("/a", "token=s3", "/a?token=REDACTED"),
    ("/a", "x=1&access_token=s3&y=2", "/a?x=1&access_token=REDACTED&y=2"),
    ("/a", "TICKET=s3", "/a?TICKET=REDACTED"),
    ("/a", "%74oken=s3", "/a?%74oken=REDACTED"),
    ("/a", "%2574oken=s3", "/a?%2574oken=REDACTED"),
    ("/a", "access-token=s3", "/a?access-token=REDACTED"),
    ("/a", "x=1;token=s3", "/a?x=1;token=REDACTED"),
    ("/a", "password=s3=s3", "/a?password=REDACTED"),
    ("/a", "token", "/a?REDACTED"),
    ("/a", "watch=/b?token=s3", "/a?watch=REDACTED"),
    ("/a", "watch=%2Fb%3Fx%3D1%26token%3Ds3", "/a?watch=REDACTED"),
    ("/a", "watch=%252Fb%253Ftoken%253Ds3", "/a?watch=REDACTED"),
]


@pytest.mark.parametrize(("path", "query", "shown"), URIS)
def test_uri(path: str, query: str, shown: str) -> None:
    """Credentials in a query are redacted, also if they are escaped; the rest is kept."""
    assert redacted_uri(path, query) == shown


def test_long_uri() -> None:
    """A long path is truncated."""
    assert redacted_uri("/" + "x" * 10_000, "") == "/" + "x" * (URI_LENGTH_MAX - 1) + "...TRUNCATED"


SECRETS = [
    ("/api/v1/namespaces/a/secrets", True),
    ("/api/v1/namespaces/a/secrets/s", True),
    ("/apis/other.example/v1/secrets", True),
    ("/apis/authentication.k8s.io/v1/tokenreviews", True),
    ("/api/v1/namespaces/a/serviceaccounts/x/token", True),
    ("/api/v1/namespaces/a/serviceaccounts/x", False),
    ("/api/v1/namespaces/a/configmaps/x", False),
]


@pytest.mark.parametrize(("path", "wanted"), SECRETS)
def test_secret(path: str, wanted: bool) -> None:
    """Secrets, token reviews and token requests count as secret."""
    assert holds_secrets(parse_request("POST", path)) is wanted


def test_managed_fields() -> None:
    """Managed fields are removed from objects, lists and tables, without changing the input."""
    obj: dict[str, Any] = {"metadata": {"name": "x", "managedFields": [1]}, "data": {"a": "b"}}
    plain = {"metadata": {"name": "x"}, "data": {"a": "b"}}
    before = orjson.dumps(obj)
    assert without_managed_fields(obj) == plain
    assert without_managed_fields({"items": [obj, 1]}) == {"items": [plain, 1]}
    rows = {"rows": [{"cells": [], "object": obj}, {"cells": []}]}
    assert without_managed_fields(rows) == {"rows": [{"cells": [], "object": plain}, {"cells": []}]}
    assert without_managed_fields("x") == "x"
    assert orjson.dumps(obj) == before
