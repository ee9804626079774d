"""Kubeconfig users whose credential comes from `credential_plugin`, and what the plugin saw."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("credential_plugin.py")
V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


@dataclass(frozen=True)
class PluginFiles:
    """The directory of one plugin."""

    directory: Path

    def returns(self, **status: str) -> None:
        """Let the next runs return this status."""
        self.writes({"status": status})

    def writes(self, *answers: dict[str, Any]) -> None:
        """Let the first runs of the plugin write these, and all later ones the last of them."""
        (self.directory / "status").write_text(json.dumps(answers))

    def user(self, mode: str = "credential", **more: Any) -> dict[str, Any]:
        """The user of a kubeconfig."""
        plugin = {
            "apiVersion": V1,
            "command": sys.executable,
            "args": [str(SCRIPT), mode, str(self.directory)],
            "interactiveMode": "Never",
        }
        return {"exec": plugin | more}

    @property
    def runs(self) -> int:
        path = self.directory / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def info(self) -> dict[str, Any]:
        """The KUBERNETES_EXEC_INFO of the last run."""
        found: dict[str, Any] = json.loads((self.directory / "info").read_text())
        return found
