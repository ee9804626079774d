"""Clients that write continuously, and keep every response."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from tests.e2e.storageversion.clusters import POLL_SECONDS, WAIT_SECONDS_MAX, WIDGETS, widget
from tests.support.server_process import ServerProcess

CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"
MERGE_PATCH: Final = "application/merge-patch+json"
REQUESTS_MAX: Final = 100_000
_CONNECT_AGAIN_SECONDS: Final = 0.001
_ALREADY_DONE: Final = {("POST", 409): 201, ("DELETE", 404): 200}
"""Reason of a refused retry if the first attempt was done, and the status of the first attempt."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a write."""

    method: str
    path: str
    status: int
    retry_after: str | None
    text: str

    @property
    def is_fair(self) -> bool:
        """Returns whether it is a success, or an error with Retry-After."""
        return self.status in (200, 201) or (self.status == 503 and self.retry_after is not None)

    @property
    def is_unknown(self) -> bool:
        """Returns whether the outcome is unknown even to the server: its store has not responded
        in time."""
        return self.status == 504 and "not known whether the write has happened" in self.text


class Client:
    """One connection, opened when it is first needed."""

    def __init__(self, server: ServerProcess, *, seconds_max: float = WAIT_SECONDS_MAX) -> None:
        token = (server.pki_dir / "admin.token").read_text().strip()
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        context = ssl.create_default_context(cafile=str(server.pki_dir / "ca.crt"))
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, timeout=seconds_max, context=context
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def send(
        self, method: str, path: str, body: object = None, *, content_type: str = ""
    ) -> Answer:
        """Sends one request; raises OSError or HTTPException when there is no response."""
        self.queue(method, path, body, content_type=content_type)
        return self._answer(method, path)

    def queue(self, method: str, path: str, body: object = None, *, content_type: str = "") -> None:
        """Sends one request, whose response `answer` returns."""
        headers = self._headers | ({"Content-Type": content_type} if content_type else {})
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, headers)

    def begin(self, path: str, body: dict[str, Any]) -> bytes:
        """Sends the head and half of the body of a POST; returns the rest."""
        data = json.dumps(body).encode()
        self._connection.putrequest("POST", path)
        for name, value in (*self._headers.items(), ("Content-Length", str(len(data)))):
            self._connection.putheader(name, value)
        half = len(data) // 2
        self._connection.endheaders(data[:half])
        return data[half:]

    def finish(self, rest: bytes) -> None:
        self._connection.send(rest)

    def answer(self, path: str, method: str = "POST") -> Answer:
        """Returns the response to a request sent by `begin` and `finish`, or by `queue`."""
        return self._answer(method, path)

    def _answer(self, method: str, path: str) -> Answer:
        found = self._connection.getresponse()
        text = found.read().decode()
        return Answer(method, path, found.status, found.getheader("Retry-After"), text)


class Hammer:
    """Threads that create, patch and delete; some objects of each stay."""

    def __init__(
        self, server: ServerProcess, *, writers: int, gap_seconds: float = 0.0, prefix: str = "w"
    ) -> None:
        """The server need not listen yet, but its port must be known. Concurrent hammers need
        different prefixes for their objects."""
        self._server = server
        self._prefix = prefix
        self._gap_seconds = gap_seconds
        self._stop = threading.Event()
        self.answers: list[Answer] = []
        """In order of arrival."""
        self.unknown = 0
        """The number of responses with an unknown outcome, after which the write was sent again."""
        self._threads = [
            threading.Thread(target=self._write, args=[number], daemon=True)
            for number in range(writers)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS_MAX)
            assert not thread.is_alive(), "a request is never answered"

    def wait_for_successes(self, wanted: int) -> None:
        """Waits for this many more successful writes."""
        known, deadline = len(self.answers), time.monotonic() + WAIT_SECONDS_MAX
        while sum(answer.status < 300 for answer in self.answers[known:]) < wanted:
            assert time.monotonic() < deadline, self.answers[-3:]
            time.sleep(POLL_SECONDS)

    def _write(self, writer: int) -> None:
        client = Client(self._server)
        for number in range(REQUESTS_MAX):
            path = (WIDGETS, CONFIG_MAPS)[number % 2]
            name = f"{self._prefix}{writer}-{number}"
            try:
                made = self._send(client, "POST", path, widget(name))
                if made.status == 201:
                    patch = {"metadata": {"labels": {"n": str(number)}}}
                    self._send(client, "PATCH", f"{path}/{name}", patch, MERGE_PATCH)
                if made.status == 201 and number % 3 == 0:
                    self._send(client, "DELETE", f"{path}/{name}")
            except (OSError, http.client.HTTPException):
                # No server listens yet, or it has closed the connection.
                client.close()
                self._stop.wait(_CONNECT_AGAIN_SECONDS)
            if self._stop.wait(self._gap_seconds):
                break
        client.close()

    def _send(
        self, client: Client, method: str, path: str, body: object = None, content_type: str = ""
    ) -> Answer:
        answer = client.send(method, path, body, content_type=content_type)
        while answer.is_unknown and not self._stop.is_set():
            self.unknown += 1
            answer = client.send(method, path, body, content_type=content_type)
            # No other client writes this name: if it exists, an earlier attempt created it.
            done = _ALREADY_DONE.get((method, answer.status), answer.status)
            answer = replace(answer, status=done)
        self.answers.append(answer)
        return answer
