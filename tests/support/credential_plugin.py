"""An exec credential plugin for tests: a program whose behavior is its first argument.

    credential_plugin.py MODE DIRECTORY

It appends a line to DIRECTORY/runs for each run, and writes its KUBERNETES_EXEC_INFO to
DIRECTORY/info. DIRECTORY/status has the answers of the runs, as a list; the last one is repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HANG_SECONDS = 600


def main(mode: str, directory: Path) -> int:
    info = os.environ["KUBERNETES_EXEC_INFO"]
    (directory / "info").write_text(info)
    with (directory / "runs").open("a") as runs:
        print(os.getpid(), file=runs, flush=True)
    match mode:
        case "credential":
            credential(directory, info)
        case "slow":
            time.sleep(0.3)
            credential(directory, info)
        case "input":
            (directory / "input").write_text(sys.stdin.readline())
            credential(directory, info)
        case "fail":
            sys.stderr.write("Unable to locate\x1b[31m credentials\n")
            return 3
        case "garbage":
            sys.stdout.write("secret-token: [\n")
        case "silent":
            pass
        case "flood":
            for _ in range(64):
                sys.stdout.write("x" * 65_536)
        case "hang":
            child = subprocess.Popen(["sleep", str(HANG_SECONDS)])
            (directory / "child").write_text(str(child.pid))
            sys.stderr.write("waiting for a login\n")
            sys.stderr.flush()
            time.sleep(HANG_SECONDS)
    return 0


def credential(directory: Path, info: str) -> None:
    answers: list[dict[str, Any]] = json.loads((directory / "status").read_text())
    run = len((directory / "runs").read_text().splitlines())
    answer = answers[min(run, len(answers)) - 1]
    answer.setdefault("apiVersion", json.loads(info)["apiVersion"])
    sys.stdout.write(json.dumps({"kind": "ExecCredential"} | answer))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
