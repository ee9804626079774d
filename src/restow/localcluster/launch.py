"""Become another program that ends when its parent does. Run as a script, with as little as can be.

    python -I -S launch.py PARENT_PID PROGRAM ARGUMENT...

The kernel sends SIGKILL when the parent is gone, however it went. Programs that know nothing of
restow are started so too. Not here: anything that is imported by others.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
EXIT_NO_PARENT = 1


def main(words: list[str]) -> None:
    """Ask the kernel, see that the parent still lives, and become the program."""
    parent, program, *arguments = words
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(parent):
        sys.exit(EXIT_NO_PARENT)  # It ended before it could be asked about.
    os.execv(program, [program, *arguments])  # noqa: S606 - that is what it is for


if __name__ == "__main__":
    main(sys.argv[1:])
