"""What a process does first because it holds keys: files for nobody else, no dumps of memory.

A core file would hold every key of a cluster, and so would what another process of the same user
reads from its memory. Who debugs says RESTOW_ALLOW_CORE_DUMPS=1. Linux only in part: elsewhere
there is no such call, and the limit is all there is.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Mapping
from typing import Final

ALLOW_CORE_DUMPS: Final = "RESTOW_ALLOW_CORE_DUMPS"
UMASK: Final = 0o077
PR_SET_DUMPABLE: Final = 4


def harden(environ: Mapping[str, str] = os.environ) -> None:
    """Make new files private, and keep the memory of this process to itself."""
    os.umask(UMASK)
    if environ.get(ALLOW_CORE_DUMPS) == "1":
        return
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    if sys.platform == "linux":
        # The limit does not count where the kernel pipes a core to a program; this does.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
