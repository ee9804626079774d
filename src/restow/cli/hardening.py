"""Process hardening, because servers hold keys: private files, and no core dumps.

A core file contains every key of a cluster, and so does the memory that another process of the same
user can read. For debugging set RESTOW_ALLOW_CORE_DUMPS=1. Only Linux has `prctl`; elsewhere the
resource limit is the only protection.
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
    """Create new files private, and protect the memory of this process."""
    os.umask(UMASK)
    if environ.get(ALLOW_CORE_DUMPS) == "1":
        return
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    if sys.platform == "linux":
        # The kernel ignores the limit if it pipes cores to a program; this covers that case.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
