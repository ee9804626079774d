"""Encryption configuration files for tests, benchmarks and demonstrations. Never use their keys."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Final

KEY_BYTES: Final = 32


def provider(spec: str) -> dict[str, object]:
    """`identity`, or `cipher:name`, such as `aesgcm:k1`, with a secret derived from the name.
    `aesgcm:k1!` is another secret with the name `k1`."""
    cipher, _, name = spec.partition(":")
    if not name:
        return {cipher: {}}
    secret = hashlib.sha256(f"restow test key {name}".encode()).digest()[:KEY_BYTES]
    return {
        cipher: {"keys": [{"name": name.rstrip("!"), "secret": base64.b64encode(secret).decode()}]}
    }


def write_encryption_file(path: Path, *specs: str, resources: tuple[str, ...] = ("*.*",)) -> Path:
    """A file with these keys, the one to write with first. An existing one is replaced atomically,
    as in a deployment."""
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {"resources": list(resources), "providers": [provider(spec) for spec in specs]}
        ],
    }
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(document), encoding="utf-8")
    new.replace(path)
    return path
