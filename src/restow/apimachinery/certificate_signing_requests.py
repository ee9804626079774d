"""PEM certificate requests and certificates: parsing and validation.

Other parsers must not read a different block than this one, since what is validated here is signed
elsewhere. So a request must be a single block, optionally preceded by comments.

Not here: who may request what, and who signs (`restow.admission.certificate_signing`).
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
    """The content of a certificate signing request."""

    organizations: tuple[str, ...]
    """The groups of the user that the certificate authenticates."""


@dataclass(frozen=True, slots=True)
class _Block:
    label: str
    has_headers: bool
    data: bytes


def parse_request(text: bytes) -> SigningRequest:
    """Parse a request and verify its signature. Raises ValueError with the reason."""
    if text.count(_BEGIN) > 1:
        raise ValueError("must hold one PEM block")
    block = next(_blocks(text), None)
    if block is None or block.label != CERTIFICATE_REQUEST:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        found = x509.load_der_x509_csr(block.data)
        names = found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        organizations = tuple(str(each.value) for each in names)
    except Exception:  # noqa: BLE001 - many possible failures, one result
        raise ValueError("x509: malformed certificate request") from None
    _check_signature(found)
    return SigningRequest(organizations)


def check_certificates(text: bytes) -> None:
    """Raise ValueError with the reason if the PEM holds anything but certificates."""
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
    """Decode a base64 field; empty if it is invalid."""
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
    """Iterate over the readable PEM blocks, in order, in linear time."""
    position = 0
    while (begin := text.find(_BEGIN, position)) >= 0:
        end = text.find(_END, begin)
        if end < 0:
            return
        position = end + len(_END)
        if begin and text[begin - 1 : begin] != b"\n":
            continue  # a marker in the middle of a line does not count
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
