"""Messages of the control socket: one JSON object per line, in both directions.

A request is one line. The reply is any number of progress lines, and a last line with an error or
the overview. Both sides send the protocol version; the supervisor rejects other versions. Not here:
the server (`control`) and the client (`control_client`).
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
    """A request. `roll` and `restart` affect one process, `stop` all of them."""

    version: int = VERSION
    verb: Verb
    server: int | None = None
    """The server number, for `roll`."""
    name: str | None = None
    """The process name as in the overview, for `restart`."""
    release: str | None = None
    release_file: str | None = None
    """The file that the kept release was copied from."""
    is_rollback: bool = False
    """`roll` back to the release before the last upgrade; `release` is not set then."""


class ProcessView(msgspec.Struct, kw_only=True, frozen=True):
    """The state of one process."""

    name: str
    state: str
    note: str = ""
    pid: int | None = None
    restarts: int = 0
    index: int | None = None
    """The number of the server; None for other processes."""
    port: int | None = None
    url: str = ""
    release: str = ""


class ProcessOverview(msgspec.Struct, kw_only=True, frozen=True):
    """The state of the cluster."""

    pid: int
    data_dir: str
    kubeconfig: str
    front_url: str
    store: str
    is_ready: bool
    upgrade: Upgrade | None = None
    processes: tuple[ProcessView, ...] = ()
    release_files: dict[str, str] = {}
    """As in `ClusterState`."""

    def label(self, release: str) -> str:
        """The display name of a release."""
        return release_label(release, self.release_files)

    @property
    def servers(self) -> tuple[ProcessView, ...]:
        return tuple(each for each in self.processes if each.index is not None)


class ControlReply(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One line of the reply."""

    version: int = VERSION
    progress: str = ""
    error: str = ""
    overview: ProcessOverview | None = None
    """Set in the last line, unless it is an error."""

    @property
    def is_last(self) -> bool:
        return bool(self.error) or self.overview is not None
