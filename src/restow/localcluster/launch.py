"""Replace this process by a program that ends with its parent. Run as a script.

    python -I -S launch.py PARENT_PID PROGRAM ARGUMENT...

The kernel sends SIGKILL when the parent has ended, for whatever reason. This also works for
programs that are not part of restow. It imports as little as possible. Not here: anything that
other modules import.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
EXIT_NO_PARENT = 1


def main(words: list[str]) -> None:
    """Set the death signal, check that the parent is alive, and exec the program."""
    parent, program, *arguments = words
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(parent):
        sys.exit(EXIT_NO_PARENT)  # It ended before the prctl call.
    os.execv(program, [program, *arguments])  # noqa: S606 - intended


if __name__ == "__main__":
    main(sys.argv[1:])
