"""Releases made for a test: the kind that changes its version, and any number of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_release(path: Path, *, others: int, widgets: str = "") -> Path:
    """Writes a release with this many data-only kinds; `widgets` is their storage version."""
    kinds = [_kind("Widget", ["v1", "v2"], widgets)] if widgets else []
    kinds += [_kind(f"Kind{number}", ["v1"], "v1") for number in range(others)]
    path.write_text(json.dumps({"release": path.stem, "kinds": kinds}))  # JSON is YAML
    return path


def _kind(kind: str, versions: list[str], storage: str) -> dict[str, Any]:
    return {
        "group": "example.com",
        "kind": kind,
        "plural": f"{kind.lower()}s",
        "scope": "Namespaced",
        "versions": [{"name": version} for version in versions],
        "storage": storage,
        "conversion": "rename",
        "schema": "open",
    }
