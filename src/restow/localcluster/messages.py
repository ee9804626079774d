"""What is said on the control socket: one JSON object a line, in both directions.

A request is one line. The answer is any number of lines that tell how it goes, and a last one that
is an error or has the overview. Both sides name the version of these words; the supervisor refuses
others. Not here: who listens (`control`) and who asks (`control_client`).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from restow.localcluster.release_files import release_label
from restow.localcluster.state import Upgrade

VERSION: Final = 1
LINE_BYTES_MAX: Final = 1024 * 1024

Verb = Literal["list", "roll", "restart", "stop"]


class ControlRequest(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """`roll` and `restart` are about one process; `stop` is about all of them."""

    version: int = VERSION
    verb: Verb
    server: int | None = None
    """For `roll`."""
    name: str | None = None
    """For `restart`: a process, as the overview calls it."""
    release: str | None = None
    release_file: str | None = None
    """The file that the kept release was copied from."""
    is_rollback: bool = False
    """`roll` back to what the server had before the last upgrade; no release is named then."""


class ProcessView(msgspec.Struct, kw_only=True, frozen=True):
    """One process, as it is."""

    name: str
    state: str
    note: str = ""
    pid: int | None = None
    restarts: int = 0
    index: int | None = None
    """Of a server."""
    port: int | None = None
    url: str = ""
    release: str = ""


class ProcessOverview(msgspec.Struct, kw_only=True, frozen=True):
    """The cluster, as it is."""

    pid: int
    data_dir: str
    kubeconfig: str
    front_url: str
    store: str
    is_ready: bool
    upgrade: Upgrade | None = None
    processes: tuple[ProcessView, ...] = ()
    release_files: dict[str, str] = {}
    """As in the state of the cluster."""

    def label(self, release: str) -> str:
        """A release for people."""
        return release_label(release, self.release_files)

    @property
    def servers(self) -> tuple[ProcessView, ...]:
        return tuple(each for each in self.processes if each.index is not None)


class ControlReply(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One line of the answer."""

    version: int = VERSION
    progress: str = ""
    error: str = ""
    overview: ProcessOverview | None = None
    """Of the last line, unless it is an error."""

    @property
    def is_last(self) -> bool:
        return bool(self.error) or self.overview is not None
