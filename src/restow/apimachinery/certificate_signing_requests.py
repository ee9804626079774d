"""Requests for certificates, and certificates, as texts in PEM form: what is in them, and whether
they can be read at all.

Nobody may read another block of a text than we do: what is checked here is signed elsewhere. So a
request is one block, in front of which there may be notes.

Not here: who may ask for what, and who signs (`restow.admission.certificate_signing`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

CERTIFICATE: Final = "CERTIFICATE"
CERTIFICATE_REQUEST: Final = "CERTIFICATE REQUEST"

_BEGIN: Final = b"-----BEGIN "
_END: Final = b"-----END "
_DASHES: Final = b"-----"


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """What somebody wants to have signed."""

    organizations: tuple[str, ...]
    """Which are the groups of the user who will show the certificate."""


@dataclass(frozen=True, slots=True)
class _Block:
    label: str
    has_headers: bool
    data: bytes


def parse_request(text: bytes) -> SigningRequest:
    """The request in a text, signed with its own key. Raises ValueError that says what is wrong."""
    if text.count(_BEGIN) > 1:
        raise ValueError("must hold one PEM block")
    block = next(_blocks(text), None)
    if block is None or block.label != CERTIFICATE_REQUEST:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        found = x509.load_der_x509_csr(block.data)
        names = found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        organizations = tuple(str(each.value) for each in names)
    except Exception:  # noqa: BLE001 - many ways to be wrong, one answer
        raise ValueError("x509: malformed certificate request") from None
    _check_signature(found)
    return SigningRequest(organizations)


def check_certificates(text: bytes) -> None:
    """Raise ValueError, which says what is wrong, for what holds anything but certificates."""
    count = 0
    for block in _blocks(text):
        if block.label != CERTIFICATE:
            raise ValueError(f'only CERTIFICATE PEM blocks are allowed, found "{block.label}"')
        if block.has_headers:
            raise ValueError("no PEM block headers are permitted")
        try:
            x509.load_der_x509_certificate(block.data)
        except Exception:  # noqa: BLE001 - as above
            raise ValueError("x509: malformed certificate") from None
        count += 1
    if not count:
        raise ValueError("must contain at least one CERTIFICATE PEM block")


def decoded(text: object) -> bytes:
    """The bytes of a field that holds them in base64; none for what does not."""
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _check_signature(request: x509.CertificateSigningRequest) -> None:
    try:
        key = request.public_key()
        if request.is_signature_valid:
            return
    except Exception:  # noqa: BLE001 - as above
        raise ValueError("x509: cannot verify signature: algorithm unimplemented") from None
    match key:
        case ec.EllipticCurvePublicKey():
            raise ValueError("x509: ECDSA verification failure")
        case ed25519.Ed25519PublicKey():
            raise ValueError("x509: Ed25519 verification failure")
    raise ValueError("crypto/rsa: verification error")


def _blocks(text: bytes) -> Iterator[_Block]:
    """The blocks of a text that can be read, in order; each byte is looked at a few times only."""
    position = 0
    while (begin := text.find(_BEGIN, position)) >= 0:
        end = text.find(_END, begin)
        if end < 0:
            return
        position = end + len(_END)
        if begin and text[begin - 1 : begin] != b"\n":
            continue  # in the middle of a line it is no mark
        line, _, body = text[begin + len(_BEGIN) : end].partition(b"\n")
        label, _, rest = line.rstrip(b" \t\r").rpartition(_DASHES)
        if rest or not label or not text.startswith(label + _DASHES, position):
            continue
        block = _block(label, body)
        if block is not None:
            yield block


def _block(label: bytes, body: bytes) -> _Block | None:
    headers, lines = 0, body.splitlines()
    while headers < len(lines) and b":" in lines[headers]:
        headers += 1
    try:
        data = base64.b64decode(b"".join(b"".join(lines[headers:]).split()), validate=True)
        return _Block(label.decode("ascii"), headers > 0, data)
    except (binascii.Error, ValueError):
        return None
