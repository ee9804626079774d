"""Configurations and keyrings for the tests of encryption at rest."""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from restow.aio import Runtime
from restow.encryption.configuration import read_configuration
from restow.encryption.keyring import Keyring

SECRETS: Final = {name: bytes([number]) * 32 for number, name in enumerate("abcdef", start=1)}


def local(cipher: str, *names: str) -> dict[str, object]:
    """A provider whose keys are named like their secrets; `a=b` has the secret of another name."""
    keys = []
    for name in names:
        called, _, secret = name.partition("=")
        keys.append(
            {"name": called, "secret": base64.b64encode(SECRETS[secret or called]).decode()}
        )
    return {cipher: {"keys": keys}}


def kms(endpoint: str, name: str = "vault", timeout: str = "300ms") -> dict[str, object]:
    return {"kms": {"apiVersion": "v2", "name": name, "endpoint": endpoint, "timeout": timeout}}


IDENTITY: Final[dict[str, object]] = {"identity": {}}


def document(*blocks: tuple[str, list[dict[str, object]]]) -> bytes:
    """A file: for each block its resources, in one string, and its providers."""
    return msgspec.json.encode(
        {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [
                {"resources": resources.split(), "providers": providers}
                for resources, providers in blocks
            ],
        }
    )


def keyring(*blocks: tuple[str, list[dict[str, object]]], seed: int = 1) -> Keyring:
    return Keyring(read_configuration(document(*blocks)), Runtime.simulated(seed), plugins={})
