"""The document at `/version`: the Kubernetes version for clients, and restow's own version."""

from __future__ import annotations

import platform

import restow

KUBERNETES_MAJOR = "1"
KUBERNETES_MINOR = "36"


def version_document() -> dict[str, str]:
    """The document at `/version`; all values are strings, as clients require."""
    return {
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "emulationMajor": KUBERNETES_MAJOR,
        "emulationMinor": KUBERNETES_MINOR,
        "minCompatibilityMajor": KUBERNETES_MAJOR,
        "minCompatibilityMinor": KUBERNETES_MINOR,
        "gitVersion": f"v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.0+restow.{restow.__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": f"python{platform.python_version()}",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
