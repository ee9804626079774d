"""Real `restow serve --aggregated` processes behind real servers, for tests and demonstrations.

    with AggregatedProcess(directory, main=server, kinds=file) as behind:
        server.get("/apis/example.com/v1/widgets")

Not here: requests; clients reach it through the main servers.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.child_process import ChildProcess
from tests.support.server_process import ServerProcess

_READY: Final = re.compile(r"^ready: (https://\S+:(\d+)) component (\S+)$", re.MULTILINE)


class AggregatedProcess(ChildProcess):
    """One aggregated server: its directory, its arguments, and its process if it is running."""

    NAME = "aggregated"

    def __init__(
        self,
        data_dir: Path,
        *,
        main: ServerProcess,
        kinds: Path,
        store: str = "",
        arguments: Sequence[str] = (),
    ) -> None:
        """Nothing is started yet. Without `store` it has a store of its own, in its directory."""
        super().__init__(data_dir)
        self.main = main
        self.kinds = kinds
        self.store = store
        self.arguments = tuple(arguments)
        self.url = ""
        self.port = 0
        self.component = ""

    @property
    def pki_dir(self) -> Path:
        return self.directory / "pki"

    def sibling(self, data_dir: Path, *, kinds: Path | None = None) -> AggregatedProcess:
        """Another server of the same component: on the same store, with a copy of the keys."""
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copytree(self.pki_dir, data_dir / "pki", dirs_exist_ok=True)
        return AggregatedProcess(
            data_dir,
            main=self.main,
            kinds=kinds or self.kinds,
            store=self.store or f"sqlite:{self.directory / 'store.db'}",
            arguments=self.arguments,
        )

    def command(self) -> list[str]:
        store = ("--store", self.store) if self.store else ()
        return [
            *(sys.executable, "-m", "restow", "serve", "--aggregated"),
            *("--main-kubeconfig", str(self.main.kubeconfig)),
            *("--kinds", str(self.kinds)),
            *("--data-dir", str(self.directory)),
            *("--port", str(self.port)),
            *store,
            *self.arguments,
        ]

    def is_ready(self, printed: str) -> bool:
        found = _READY.search(printed)
        if found is not None:
            self.url, self.port, self.component = found[1], int(found[2]), found[3]
        return found is not None
