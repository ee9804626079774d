"""Writes the kubeconfig file of a server into its data directory.

The file is replaced atomically and readable by its owner only; its previous content is not merged.
Not here: reading kubeconfig files (`restow.client`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from restow.apimachinery.yaml_documents import dump_document
from restow.apiserver.pki import ADMIN_USER, Pki, write_secret
from restow.storage.private_files import make_directory

CONTEXT_NAME: Final = "restow"
CERTIFICATE_USER: Final = f"{ADMIN_USER}-certificate"


@dataclass(frozen=True, slots=True)
class ExtraContext:
    """A further server of the same cluster with an address of its own."""

    name: str
    server_url: str


def write_kubeconfig(
    path: Path,
    *,
    server_url: str,
    pki: Pki,
    extra: Sequence[ExtraContext] = (),
    needs_certificate: bool = False,
) -> None:
    """Write the file. The current context uses the token; a second one uses the certificate.

    `needs_certificate`: the server requires a client certificate, so the token context has one,
    too.
    """
    document = make_kubeconfig(
        server_url=server_url, pki=pki, extra=extra, needs_certificate=needs_certificate
    )
    make_directory(path.parent)
    write_secret(path, dump_document(document).encode())


def make_kubeconfig(
    *,
    server_url: str,
    pki: Pki,
    extra: Sequence[ExtraContext] = (),
    needs_certificate: bool = False,
) -> dict[str, Any]:
    """Build the content of the file."""
    places = [ExtraContext(CONTEXT_NAME, server_url), *extra]
    contexts = [_context(place.name, place.name, ADMIN_USER) for place in places]
    contexts.insert(1, _context(f"{CONTEXT_NAME}-certificate", CONTEXT_NAME, CERTIFICATE_USER))
    names = [context["name"] for context in contexts]
    if len(names) != len(set(names)):
        raise ValueError(f"contexts have the same name: {names}")
    certificate = {
        "client-certificate-data": _data(pki.admin_cert_pem),
        "client-key-data": _data(pki.admin_key_pem),
    }
    token = {"token": pki.admin_token}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [_cluster(place, pki) for place in places],
        "users": [
            {"name": ADMIN_USER, "user": token | certificate if needs_certificate else token},
            {"name": CERTIFICATE_USER, "user": certificate},
        ],
        "contexts": contexts,
        "current-context": CONTEXT_NAME,
    }


def _cluster(place: ExtraContext, pki: Pki) -> dict[str, Any]:
    cluster = {
        "server": place.server_url,
        "certificate-authority-data": _data(pki.serving_ca_pem),
    }
    return {"name": place.name, "cluster": cluster}


def _context(name: str, cluster: str, user: str) -> dict[str, Any]:
    return {"name": name, "context": {"cluster": cluster, "user": user}}


def _data(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
