"""Load and watches for aggregated servers, through the main server, while these come and go.

All answers are kept. The watch is one that clients would make: it goes on from the last revision it
has seen when its stream ends, and must end up with what a list shows.

Not here: what the stores say afterwards (`history`), and the play (`test_rolling`).
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.e2e.aggregated.stage import part, parts_path, until
from tests.support.server_process import ServerProcess

REQUESTS_MAX: Final = 100_000
GAP_SECONDS: Final = 0.05
ANSWER_SECONDS_MAX: Final = 90.0
"""A server that stands still answers when it goes on."""
PROBE_SECONDS: Final = 1.5
MERGE_PATCH: Final = "application/merge-patch+json"
AWAY_SECONDS: Final = 0.05
STREAMS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a request."""

    method: str
    status: int
    text: str


class Line:
    """A connection to a server, as an administrator."""

    def __init__(
        self, port: int, *, ca_file: Path, token: str, seconds_max: float = ANSWER_SECONDS_MAX
    ) -> None:
        context = ssl.create_default_context(cafile=str(ca_file))
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=seconds_max, context=context
        )

    @classmethod
    def to(cls, server: ServerProcess) -> Line:
        """To a main server."""
        return cls(server.port, ca_file=server.pki_dir / "ca.crt", token=server.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.connection.close()

    def send(
        self, method: str, path: str, body: object = None, *, content_type: str = ""
    ) -> Answer:
        found = self.ask(method, path, body, content_type=content_type)
        return Answer(method, found.status, found.read().decode())

    def ask(
        self, method: str, path: str, body: object = None, *, content_type: str = ""
    ) -> http.client.HTTPResponse:
        """The head of an answer; its body is yet to be read."""
        headers = self._headers | ({"Content-Type": content_type} if content_type else {})
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, headers)
        return self.connection.getresponse()

    def begin(self, path: str, body: dict[str, Any]) -> bytes:
        """Send the head and half of the body of a POST; the rest."""
        data = json.dumps(body).encode()
        self.connection.putrequest("POST", path)
        for name, value in (*self._headers.items(), ("Content-Length", str(len(data)))):
            self.connection.putheader(name, value)
        half = len(data) // 2
        self.connection.endheaders(data[:half])
        return data[half:]

    def answer(self) -> Answer:
        """The answer to what was begun, when the rest was sent."""
        found = self.connection.getresponse()
        return Answer("POST", found.status, found.read().decode())


class Load:
    """Threads that create, patch, read and delete through the main server without an end."""

    def __init__(self, main: ServerProcess, *, group: str, writers: int, prefix: str) -> None:
        self._main = main
        self._group = group
        self._prefix = prefix
        self._stop = threading.Event()
        self.answers: list[Answer] = []
        """In the order in which they came."""
        self.broken: list[str] = []
        """What the main server did not answer at all."""
        self._threads = [
            threading.Thread(target=self._write, args=[number], daemon=True)
            for number in range(writers)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Wait until all that was sent is answered."""
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS_MAX)
            assert not thread.is_alive(), "a request is never answered"

    def wait_for_successes(self, wanted: int) -> None:
        """Wait until so many more requests were done."""
        known = len(self.answers)
        until(lambda: sum(each.status < 300 for each in self.answers[known:]) >= wanted)

    def failed(self, since: int = 0) -> list[Answer]:
        """What was answered, but not done."""
        return [each for each in self.answers[since:] if each.status >= 300]

    def _write(self, writer: int) -> None:
        with Line.to(self._main) as line:
            for number in range(REQUESTS_MAX):
                try:
                    self._turn(line, f"{self._prefix}{writer}-{number}", number)
                except (OSError, http.client.HTTPException) as error:
                    self.broken.append(repr(error))
                    line.connection.close()
                if self._stop.wait(GAP_SECONDS):
                    return

    def _turn(self, line: Line, name: str, number: int) -> None:
        path = parts_path(group=self._group)
        made = line.send("POST", path, part(name, number, group=self._group))
        self.answers.append(made)
        if made.status != 201:
            return
        patch = {"spec": {"colour": "blue"}}
        place = f"{path}/{name}"
        self.answers.append(line.send("PATCH", place, patch, content_type=MERGE_PATCH))
        self.answers.append(line.send("GET", place))
        if number % 3:
            self.answers.append(line.send("DELETE", place))


class Watch:
    """A watch through the main server that is taken up again whenever its stream ends."""

    def __init__(self, main: ServerProcess, *, group: str) -> None:
        self._main = main
        self._path = parts_path(group=group)
        self._stop = threading.Event()
        self._line: Line | None = None
        self.streams = 0
        """How many streams there were."""
        self.problems: list[str] = []
        self.seen: dict[str, str] = {}
        """The resource versions of all objects that are there."""
        self._revision = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        with Line.to(self._main) as line:
            self.seen, self._revision = self._list(line)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        line = self._line
        if line is not None and line.connection.sock is not None:
            line.connection.sock.close()

    def check(self) -> int:
        """See that it has seen what is there, once nobody writes; how many objects."""
        with Line.to(self._main) as line:
            listed, _ = self._list(line)
        until(lambda: self.seen == listed or self.problems)
        assert self.problems == []
        return len(listed)

    def _list(self, line: Line) -> tuple[dict[str, str], str]:
        answer = line.send("GET", self._path)
        assert answer.status == 200, answer
        found = json.loads(answer.text)
        seen = {
            each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found["items"]
        }
        return seen, found["metadata"]["resourceVersion"]

    def _run(self) -> None:
        for _ in range(STREAMS_MAX):
            try:
                with Line.to(self._main) as self._line:
                    self._follow(self._line)
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                pass  # its server is gone, or the test is over
            if self._stop.wait(AWAY_SECONDS):
                return

    def _follow(self, line: Line) -> None:
        query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={self._revision}"
        answer = line.ask("GET", self._path + query)
        if answer.status != 200:
            if answer.status != 503:
                self.problems.append(f"{answer.status}: {answer.read().decode()}")
            return
        self.streams += 1
        while text := answer.readline():
            if text.endswith(b"\n") and text.strip():
                self._take(json.loads(text))

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            self.problems.append(str(event["object"]))
            return
        metadata = event["object"]["metadata"]
        self._revision = metadata["resourceVersion"]
        match event["type"]:
            case "ADDED" | "MODIFIED":
                self.seen[metadata["name"]] = self._revision
            case "DELETED":
                self.seen.pop(metadata["name"], None)


def can_write(line: Callable[[], Line], path: str, body: dict[str, Any]) -> bool:
    """Whether a write is answered soon."""
    with line() as one:
        try:
            return one.send("POST", path, body).status == 201
        except TimeoutError:
            return False
