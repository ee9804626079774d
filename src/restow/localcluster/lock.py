"""The lock of a data directory: held by the supervisor of `restow up` for as long as it runs.

The kernel releases it with the process: a lock file that is not locked means that none runs.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from restow.localcluster.errors import ClusterRuns
from restow.localcluster.layout import Layout

_PID_BYTES_MAX = 32


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Hold the lock for the block. Raises ClusterRuns if another supervisor has it."""
    file = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(file)
            raise ClusterRuns(
                f"a cluster already runs in {layout.data_dir} (process {holder or '?'}): use it"
                f" with {layout.kubeconfig}, stop it by Ctrl-C or kill -TERM {holder or 'PID'}, or"
                " use another --data-dir"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def supervisor_of(layout: Layout) -> str | None:
    """The process id of the supervisor that runs in the directory, or None.

    The id is "?" if the supervisor has not written it yet.
    """
    try:
        file = os.open(layout.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # never started here, or by another user
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(file) or "?"
    else:
        return None
    finally:
        os.close(file)


def _holder(file: int) -> str:
    return os.pread(file, _PID_BYTES_MAX, 0).decode(errors="replace").strip()
