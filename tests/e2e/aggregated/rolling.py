"""Load and watches for aggregated servers, through the main server, while these start and stop.

All responses are kept. The watch behaves like a client's: it resumes from the last revision seen
when its stream ends, and must finally equal a list.

Not here: checks of the stores (`history`), and the sequence of steps (`test_rolling`).
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
"""A paused server responds after it is resumed."""
PROBE_SECONDS: Final = 1.5
MERGE_PATCH: Final = "application/merge-patch+json"
AWAY_SECONDS: Final = 0.05
STREAMS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request."""

    method: str
    status: int
    text: str


class Connection:
    """A connection to a server, as an administrator."""

    def __init__(
        self, port: int, *, ca_file: Path, token: str, seconds_max: float = ANSWER_SECONDS_MAX
    ) -> None:
        context = ssl.create_default_context(cafile=str(ca_file))
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.http = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=seconds_max, context=context
        )

    @classmethod
    def to(cls, server: ServerProcess) -> Connection:
        """Connects to a main server."""
        return cls(server.port, ca_file=server.pki_dir / "ca.crt", token=server.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.http.close()

    def send(
        self, method: str, path: str, body: object = None, *, content_type: str = ""
    ) -> Answer:
        found = self.ask(method, path, body, content_type=content_type)
        return Answer(method, found.status, found.read().decode())

    def ask(
        self, method: str, path: str, body: object = None, *, content_type: str = ""
    ) -> http.client.HTTPResponse:
        """Returns the response after its head; the body is not read yet."""
        headers = self._headers | ({"Content-Type": content_type} if content_type else {})
        data = None if body is None else json.dumps(body)
        self.http.request(method, path, data, headers)
        return self.http.getresponse()

    def begin(self, path: str, body: dict[str, Any]) -> bytes:
        """Sends the head and half of the body of a POST; returns the rest."""
        data = json.dumps(body).encode()
        self.http.putrequest("POST", path)
        for name, value in (*self._headers.items(), ("Content-Length", str(len(data)))):
            self.http.putheader(name, value)
        half = len(data) // 2
        self.http.endheaders(data[:half])
        return data[half:]

    def answer(self) -> Answer:
        """Returns the response to `begin`, after the rest was sent."""
        found = self.http.getresponse()
        return Answer("POST", found.status, found.read().decode())


class Load:
    """Threads that create, patch, read and delete through the main server until stopped."""

    def __init__(self, main: ServerProcess, *, group: str, writers: int, prefix: str) -> None:
        self._main = main
        self._group = group
        self._prefix = prefix
        self._stop = threading.Event()
        self.answers: list[Answer] = []
        """In order of arrival."""
        self.broken: list[str] = []
        """Requests without a response from the main server."""
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
        """Waits until all requests have a response."""
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS_MAX)
            assert not thread.is_alive(), "a request is never answered"

    def wait_for_successes(self, wanted: int) -> None:
        """Waits until this many more requests have succeeded."""
        known = len(self.answers)
        until(lambda: sum(each.status < 300 for each in self.answers[known:]) >= wanted)

    def failed(self, since: int = 0) -> list[Answer]:
        """Returns the responses that are failures."""
        return [each for each in self.answers[since:] if each.status >= 300]

    def _write(self, writer: int) -> None:
        with Connection.to(self._main) as connection:
            for number in range(REQUESTS_MAX):
                try:
                    self._write_once(connection, f"{self._prefix}{writer}-{number}", number)
                except (OSError, http.client.HTTPException) as error:
                    self.broken.append(repr(error))
                    connection.http.close()
                if self._stop.wait(GAP_SECONDS):
                    return

    def _write_once(self, connection: Connection, name: str, number: int) -> None:
        path = parts_path(group=self._group)
        made = connection.send("POST", path, part(name, number, group=self._group))
        self.answers.append(made)
        if made.status != 201:
            return
        patch = {"spec": {"colour": "blue"}}
        place = f"{path}/{name}"
        self.answers.append(connection.send("PATCH", place, patch, content_type=MERGE_PATCH))
        self.answers.append(connection.send("GET", place))
        if number % 3:
            self.answers.append(connection.send("DELETE", place))


class Watch:
    """A watch through the main server that is resumed whenever its stream ends."""

    def __init__(self, main: ServerProcess, *, group: str) -> None:
        self._main = main
        self._path = parts_path(group=group)
        self._stop = threading.Event()
        self._connection: Connection | None = None
        self.streams = 0
        """The number of streams so far."""
        self.problems: list[str] = []
        self.seen: dict[str, str] = {}
        """The resource versions of all existing objects."""
        self._revision = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        with Connection.to(self._main) as connection:
            self.seen, self._revision = self._list(connection)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        connection = self._connection
        if connection is not None and connection.http.sock is not None:
            connection.http.sock.close()

    def check(self) -> int:
        """Checks that the watch equals a list, after all writes; returns the number of objects."""
        with Connection.to(self._main) as connection:
            listed, _ = self._list(connection)
        until(lambda: self.seen == listed or self.problems)
        assert self.problems == []
        return len(listed)

    def _list(self, connection: Connection) -> tuple[dict[str, str], str]:
        answer = connection.send("GET", self._path)
        assert answer.status == 200, answer
        found = json.loads(answer.text)
        seen = {
            each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found["items"]
        }
        return seen, found["metadata"]["resourceVersion"]

    def _run(self) -> None:
        for _ in range(STREAMS_MAX):
            try:
                with Connection.to(self._main) as self._connection:
                    self._follow(self._connection)
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                pass  # its server has stopped, or the test is over
            if self._stop.wait(AWAY_SECONDS):
                return

    def _follow(self, connection: Connection) -> None:
        query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={self._revision}"
        answer = connection.ask("GET", self._path + query)
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


def can_write(connection: Callable[[], Connection], path: str, body: dict[str, Any]) -> bool:
    """Returns whether a write succeeds in time."""
    with connection() as one:
        try:
            return one.send("POST", path, body).status == 201
        except TimeoutError:
            return False
