"""Audit events of unusual requests: internal errors, disconnected clients, annotations."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from restow.aio import Clock, Runtime, SimulatedClock
from restow.apimachinery import status
from restow.audit import AuditIds, Auditor, parse_policy
from restow.audit.event_parts import Event, Stamps
from restow.httpserver import (
    Headers,
    HttpRequest,
    HttpResponse,
    Peer,
    PullStream,
    PushStream,
    StreamWriter,
)
from restow.request.context import Context, User
from restow.request.request_info import RequestInfo, parse_request
from restow.request.responses import error_answer

JANE = User("jane")
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
PODS = "/api/v1/namespaces/a/pods"


class Lines:
    """A sink that keeps its events."""

    def __init__(self, clock: Clock) -> None:
        self.lines: list[bytes] = []
        self._stamps = Stamps(clock)

    def put(self, event: Event, own_bytes: int) -> None:
        self.lines.append(self._stamps.encode_events([event]))

    def events(self) -> list[dict[str, Any]]:
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in self.lines)
        found, self.lines = [orjson.loads(line) for line in self.lines], []
        return found

    def summary(self) -> list[tuple[str, int]]:
        return [(each["stage"], each["responseStatus"]["code"]) for each in self.events()]


class Bench:
    """An auditor, its clock, and the events it has written."""

    def __init__(self, level: str = "Metadata") -> None:
        rules = [{"level": level, "omitStages": ["RequestReceived"]}]
        self.clock = SimulatedClock()
        self.sink = Lines(self.clock)
        policy = parse_policy(orjson.dumps({**POLICY, "rules": rules}))
        self.auditor = Auditor(policy, self.sink, self.clock)
        self._ids = AuditIds(Runtime.simulated(1).ids)

    def context(self, method: str, target: str, body: bytes = b"") -> Context:
        path, _, query = target.partition("?")
        request = HttpRequest(method, path, query, Headers([]), body, Peer(1, address="::1"), 0.0)
        request.answer_lines = self._ids.line()
        context = Context(request, parse_request(method, target))
        context.user = JANE
        return context


def test_panic() -> None:
    """An internal error has the stage Panic."""
    bench = Bench()
    context = bench.context("GET", PODS)
    bench.auditor.begin(context)
    bench.auditor.panicked(context)
    bench.auditor.complete(context, error_answer(context, status.internal("oh")))
    (event,) = bench.sink.events()
    assert (event["stage"], event["responseStatus"]["code"]) == ("Panic", 500)


async def test_abandoned_requests() -> None:
    """A disconnected client and a timeout are recorded as in Kubernetes."""
    bench = Bench()
    context = bench.context("GET", f"{PODS}?watch=1")
    bench.auditor.begin(context)
    bench.auditor.abandoned(context)
    events = bench.sink.events()
    assert [each["stage"] for each in events] == ["ResponseStarted", "ResponseComplete"]
    assert events[0]["responseStatus"]["message"] == "Connection closed early"
    late = bench.context("POST", PODS)
    late.request.answer_by_seconds = 5.0
    bench.auditor.begin(late)
    await bench.clock.advance(5)
    bench.auditor.abandoned(late)
    assert bench.sink.summary() == [("ResponseComplete", 504)]


def test_annotations() -> None:
    """Annotations of other components are beside the authorization decision and its reason."""
    bench = Bench()

    def reason(user: User, _info: RequestInfo) -> str:
        return f"because {user.name}"

    bench.auditor.reason = reason
    context = bench.context("GET", PODS)
    bench.auditor.begin(context)
    context.annotate("policy.example/warning", "a\nb")
    bench.auditor.complete(context, HttpResponse(200))
    (event,) = bench.sink.events()
    assert event["annotations"] == {
        "authorization.k8s.io/decision": "allow",
        "authorization.k8s.io/reason": "because jane",
        "policy.example/warning": "a\nb",
    }


class Channel:
    """The end of a connection, as a stream uses it."""

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None: ...

    def stream_abort(self) -> None: ...


def writer_of() -> StreamWriter:
    return StreamWriter(Channel(), lambda _: None, chunked=True)


def test_streams() -> None:
    """The end of a stream is recorded once, whether the producer or the client ends it, it ends
    immediately, or is never started; other end callbacks are called too."""
    bench = Bench()

    def begun(stream: PushStream) -> None:
        context = bench.context("GET", f"{PODS}?watch=1")
        bench.auditor.begin(context)
        bench.auditor.stream(context, stream)
        assert bench.sink.summary() == [("ResponseStarted", 200)]

    told: list[str] = []

    def start(writer: StreamWriter) -> None:
        writer.on_end = lambda: told.append("end")

    for end in (StreamWriter.close, StreamWriter.cut, StreamWriter.abort):
        stream, writer = PushStream(200, start), writer_of()
        begun(stream)
        stream.start(writer)
        assert not bench.sink.lines
        end(writer)
        end(writer)
        assert bench.sink.summary() == [("ResponseComplete", 200)]
    assert told == ["end"] * 3
    stream = PushStream(200, StreamWriter.close)
    begun(stream)
    stream.start(writer_of())
    assert bench.sink.summary() == [("ResponseComplete", 200)]
    dropped: list[str] = []
    stream = PushStream(200, start, on_dropped=lambda: dropped.append("x"))
    begun(stream)
    stream.close()
    assert (bench.sink.summary(), dropped) == ([("ResponseComplete", 200)], ["x"])

    def fail(_writer: StreamWriter) -> None:
        raise RuntimeError("no")

    stream = PushStream(200, fail)
    begun(stream)
    with pytest.raises(RuntimeError):
        stream.start(writer_of())
    assert bench.sink.summary() == [("ResponseComplete", 200)]


def test_long_list() -> None:
    """A list that is sent in pieces is recorded when it begins, without its content."""
    bench = Bench("RequestResponse")
    context = bench.context("GET", PODS)
    bench.auditor.begin(context)
    bench.auditor.stream(context, PullStream(200, iter([b"x"])))
    (event,) = bench.sink.events()
    assert event["stage"] == "ResponseComplete"
    assert event["annotations"]["audit.k8s.io/truncated"] == "true"


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b"[" * 5000, b'"\\ud800"', b'{"a":1e999}', b'{"a":\n1}', b"null"]
)
def test_odd_bodies(body: bytes) -> None:
    """An invalid body does not break the event or add a line."""
    bench = Bench("RequestResponse")
    context = bench.context("POST", PODS, body)
    bench.auditor.begin(context)
    bench.auditor.complete(context, HttpResponse(400, body))
    (event,) = bench.sink.events()
    assert event["responseStatus"]["code"] == 400
    assert bench.auditor.failures == 0


def test_failure_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """An event that cannot be created is counted and logged; the request is not affected."""
    bench = Bench()

    def broken(_user: User, _info: RequestInfo) -> str:
        raise RuntimeError("no")

    bench.auditor.reason = broken
    context = bench.context("GET", PODS)
    bench.auditor.begin(context)
    bench.auditor.complete(context, HttpResponse(200))
    assert (bench.auditor.failures, bench.sink.lines) == (1, [])
    assert "cannot create the audit event" in caplog.text
