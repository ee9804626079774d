"""Real `restow serve` processes on loopback ports, for tests, benchmarks and demonstrations.

    with ServerProcess(directory, store="sqlite:shared.db") as one, one.sibling(other) as two:
        subprocess.run(["kubectl", "--kubeconfig", one.kubeconfig, "get", "namespaces"])

Not here: requests to a server; clients use the kubeconfig.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import ssl
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self
from urllib.error import HTTPError

import yaml

from tests.support.child_process import START_SECONDS_MAX, ChildProcess

REQUEST_SECONDS_MAX: Final = 10.0
_READY: Final = re.compile(r"^ready: (https://\S+:(\d+)) ", re.MULTILINE)
_LISTENING: Final = re.compile(rb" listening on (\S+) port (\d+)$", re.MULTILINE)


class ServerProcess(ChildProcess):
    """One server: its directory, its arguments, and its process if it is running."""

    NAME = "server"

    def __init__(
        self,
        data_dir: Path,
        *,
        store: str = "",
        arguments: Sequence[str] = (),
        port: int = 0,
    ) -> None:
        """Nothing is started yet. Port 0 is any free one; a restart keeps the assigned port."""
        super().__init__(data_dir)
        self.data_dir = data_dir
        self.store = store or f"sqlite:{data_dir / 'store.db'}"
        self.arguments = tuple(arguments)
        self.port = port
        self.url = ""
        self.token = ""
        """The administrator's token, when the server is ready."""
        self.ca_pem = ""
        """The CA certificate for clients."""

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"

    @property
    def pki_dir(self) -> Path:
        return self.data_dir / "pki"

    def sibling(
        self, data_dir: Path, *, arguments: Sequence[str] = (), store: str = ""
    ) -> ServerProcess:
        """Another server of the same cluster: on the same store, with a copy of the keys."""
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copytree(self.pki_dir, data_dir / "pki", dirs_exist_ok=True)
        return ServerProcess(data_dir, store=store or self.store, arguments=arguments)

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "restow", "serve"),
            *("--data-dir", str(self.data_dir)),
            *("--store", self.store),
            *("--port", str(self.port)),
            *self.arguments,
        ]

    def is_ready(self, printed: str) -> bool:
        found = _READY.search(printed)
        if found is not None:
            self.url, self.port = found[1], int(found[2])
            self._read_kubeconfig()
        return found is not None

    def wait_listening(self, *, seconds_max: float = START_SECONDS_MAX) -> Self:
        """Wait until it accepts requests, even if it is not ready."""
        self._wait_until(self._is_listening, what="listening", seconds_max=seconds_max)
        return self

    def _is_listening(self) -> bool:
        found = _LISTENING.search(self.log_file.read_bytes(), self._log_begin)
        if found is not None:
            self.port = int(found[2])
            self.url = f"https://{found[1].decode()}:{self.port}"
            self.token = (self.pki_dir / "admin.token").read_text().strip()
            self._trust((self.pki_dir / "ca.crt").read_text())
        return found is not None

    def _read_kubeconfig(self) -> None:
        config = yaml.safe_load(self.kubeconfig.read_bytes())
        self.token = str(config["users"][0]["user"]["token"])
        data = config["clusters"][0]["cluster"]["certificate-authority-data"]
        self._trust(base64.b64decode(data).decode())

    def _trust(self, ca_pem: str) -> None:
        self.ca_pem = ca_pem
        self._context = ssl.create_default_context(cadata=ca_pem)

    def restart(self) -> Self:
        """Stop it gracefully, if it is running, and start it again on the same port."""
        if self.process is not None:
            self.stop()
        return self.start()

    def get(self, path: str, *, token: str | None = None) -> tuple[int, str]:
        """Status and body of one GET."""
        return self.request("GET", path, token=token)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Status and body of one request, by default as the administrator.

        A body that is not bytes is sent as JSON. A token of "" sends no credential.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        token = self.token if token is None else token
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(
                request, timeout=REQUEST_SECONDS_MAX, context=self._context
            ) as answer:
                return int(answer.status), answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
