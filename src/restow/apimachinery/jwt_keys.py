"""Keys that sign and verify tokens: RSA and elliptic curves, from PEM and as JWK.

A key is used with one algorithm, or with those that its configuration allows; a token that claims
another is rejected before any cryptography. The key ID of a token is only looked up among the known
keys, and never used as a path.

Not here: the content of a token (`jwt`), and where keys are stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeAlias

import orjson
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from restow.apimachinery.jwt import Jwt, JwtInvalid, decode_base64, encode_base64

KEYS_MAX: Final = 64
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
RSA_EXPONENT_MAX: Final = (1 << 31) - 1
"""As in Go. With an exponent as long as the key, verifying takes a hundred times as long."""
PEM_BYTES_MAX: Final = 1024 * 1024

Public: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
Private: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_HASHES: Final[dict[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
# By curve: the algorithm, its JWK name, and the bytes of a coordinate.
_CURVES: Final = {
    "secp256r1": ("ES256", "P-256", 32),
    "secp384r1": ("ES384", "P-384", 48),
    "secp521r1": ("ES512", "P-521", 66),
}
_JWK_CURVES: Final[dict[str, ec.EllipticCurve]] = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
}
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", re.DOTALL)


class VerifyingKey:
    """A public key, and the algorithms that it may be used with."""

    def __init__(
        self, public: Public, *, key_id: str | None = None, algorithms: Collection[str] = ()
    ) -> None:
        """The default key ID is derived from the key. Only those of `algorithms` that match the key
        are used; the default is the usual one. Raises ValueError for an unsupported or weak key.
        """
        self._public = public
        self.algorithm = _usual_algorithm(public)
        """The algorithm with which its private key signs tokens."""
        self.algorithms: Final = _fitting(public, algorithms) if algorithms else {self.algorithm}
        self.fingerprint: Final = _key_id(public)
        """The key's fingerprint, independent of its key ID."""
        self.key_id: Final = self.fingerprint if key_id is None else key_id

    def has_signed(self, token: Jwt) -> bool:
        """Report whether a token was signed with the private key."""
        if token.algorithm not in self.algorithms:
            return False
        digest = _HASHES[token.algorithm[2:]]
        try:
            if isinstance(self._public, rsa.RSAPublicKey):
                scheme = _padding(token.algorithm, digest)
                self._public.verify(token.signature, token.signed, scheme, digest)
            else:
                der = _to_der(token.signature, _CURVES[self._public.curve.name][2])
                self._public.verify(der, token.signed, ec.ECDSA(digest))
        except (InvalidSignature, ValueError):
            return False
        return True

    def as_jwk(self) -> dict[str, str]:
        """Return the public key as JWK, with the fields in the order of Kubernetes."""
        common = {"kid": self.key_id, "alg": self.algorithm}
        if isinstance(self._public, rsa.RSAPublicKey):
            numbers = self._public.public_numbers()
            own = {"n": _number(numbers.n), "e": _number(numbers.e)}
            return {"use": "sig", "kty": "RSA", **common, **own}
        point = self._public.public_numbers()
        _, curve, size = _CURVES[self._public.curve.name]
        x, y = (encode_base64(each.to_bytes(size, "big")) for each in (point.x, point.y))
        return {"use": "sig", "kty": "EC", **common, "crv": curve, "x": x, "y": y}


class SigningKey:
    """A private key. Its repr does not contain the key."""

    def __init__(self, private: Private) -> None:
        """Raises ValueError for an unsupported or weak key."""
        self._private = private
        self.public: Final = VerifyingKey(private.public_key())
        header = {"alg": self.public.algorithm, "kid": self.public.key_id}
        self._header = encode_base64(orjson.dumps(header))

    def sign(self, claims: dict[str, Any]) -> str:
        """Return a signed token with these claims."""
        payload = encode_base64(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS))
        signed = f"{self._header}.{payload}"
        return f"{signed}.{encode_base64(self._signature(signed.encode()))}"

    def _signature(self, data: bytes) -> bytes:
        algorithm = self.public.algorithm
        digest = _HASHES[algorithm[2:]]
        if isinstance(self._private, rsa.RSAPrivateKey):
            return self._private.sign(data, _padding(algorithm, digest), digest)
        r, s = decode_dss_signature(self._private.sign(data, ec.ECDSA(digest)))
        size = _CURVES[self._private.curve.name][2]
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")


class KeySet:
    """The trusted keys."""

    def __init__(self, keys: Iterable[VerifyingKey]) -> None:
        """Equal keys are deduplicated; different ones may share a key ID, or have none.

        Raises ValueError if there are too many.
        """
        self.keys: Final[Sequence[VerifyingKey]] = tuple(
            {(key.key_id, key.fingerprint, *sorted(key.algorithms)): key for key in keys}.values()
        )
        if len(self.keys) > KEYS_MAX:
            raise ValueError(f"there are more than {KEYS_MAX} keys for token verification")
        self._by_id: dict[str, list[VerifyingKey]] = {}
        for key in self.keys:
            self._by_id.setdefault(key.key_id, []).append(key)

    def check(self, token: Jwt) -> None:
        """Verify the signature of a token; raises JwtInvalid if no trusted key has signed it."""
        candidates = self._by_id.get(token.key_id, ()) if token.key_id else self.keys
        if not candidates:
            raise JwtInvalid("invalid signature, no keys found")
        if not any(key.has_signed(token) for key in candidates):
            raise JwtInvalid("invalid signature")

    def as_jwks(self) -> dict[str, Any]:
        return {"keys": [key.as_jwk() for key in self.keys]}


def read_signing_key(pem: bytes) -> SigningKey:
    """Parse a private key for signing tokens. Raises ValueError."""
    try:
        private = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("it holds no private key in PEM form") from error
    if not isinstance(private, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise ValueError("its key is neither RSA nor elliptic-curve")  # noqa: TRY004 - of a file
    return SigningKey(private)


def read_keys(pem: bytes) -> list[VerifyingKey]:
    """Parse all keys in a PEM file: public keys, certificates, and the public half of private keys.

    Raises ValueError if there is none, or if any cannot be used.
    """
    if len(pem) > PEM_BYTES_MAX:
        raise ValueError("it is too large")
    found = [_read_block(kind, block.group()) for block in _BLOCK.finditer(pem)
             if (kind := block.group(1)) != b"EC PARAMETERS"]  # fmt: skip
    if not found:
        raise ValueError("it holds no key in PEM form")
    return found


def read_jwk(jwk: dict[str, Any], *, algorithms: Collection[str]) -> VerifyingKey:
    """Parse a public key in JWK format. Raises ValueError if it cannot be used."""
    key_id, named = jwk.get("kid", ""), jwk.get("alg")
    if not isinstance(key_id, str) or jwk.get("use", "sig") != "sig":
        raise ValueError("it is not a signature key")
    allowed = algorithms if named is None else [each for each in algorithms if each == named]
    try:
        if jwk.get("kty") == "RSA":
            public: Public = rsa.RSAPublicNumbers(_int(jwk, "e"), _int(jwk, "n")).public_key()
        elif jwk.get("kty") == "EC" and (curve := _JWK_CURVES.get(str(jwk.get("crv")))):
            x, y = _int(jwk, "x"), _int(jwk, "y")
            public = ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
        else:
            raise ValueError("it is neither RSA nor of a supported curve")
    except JwtInvalid as error:
        raise ValueError("one of its numbers is not base64") from error
    if not allowed:
        raise ValueError("it is for another algorithm")
    return VerifyingKey(public, key_id=key_id, algorithms=allowed)


def _read_block(kind: bytes, pem: bytes) -> VerifyingKey:
    try:
        if kind == b"CERTIFICATE":
            key: object = x509.load_pem_x509_certificate(pem).public_key()
        elif kind.endswith(b"PRIVATE KEY"):
            private = serialization.load_pem_private_key(pem, password=None)
            key = private.public_key()
        else:
            key = serialization.load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("it holds a key that cannot be read") from error
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        raise ValueError("its key is neither RSA nor elliptic-curve")  # noqa: TRY004 - of a file
    return VerifyingKey(key)


def _usual_algorithm(public: Public) -> str:
    if isinstance(public, rsa.RSAPublicKey):
        if not RSA_BITS_MIN <= public.key_size <= RSA_BITS_MAX:
            raise ValueError(f"an RSA key must have {RSA_BITS_MIN} to {RSA_BITS_MAX} bits")
        if public.public_numbers().e > RSA_EXPONENT_MAX:
            raise ValueError(f"an RSA key must have an exponent of at most {RSA_EXPONENT_MAX}")
        return "RS256"
    if public.curve.name not in _CURVES:
        raise ValueError("an elliptic-curve key must be of the curve P-256, P-384 or P-521")
    return _CURVES[public.curve.name][0]


def _fitting(public: Public, algorithms: Collection[str]) -> Collection[str]:
    good = _RSA if isinstance(public, rsa.RSAPublicKey) else {_usual_algorithm(public)}
    fitting = good.intersection(algorithms)
    if not fitting:
        raise ValueError("the key does not support any of the algorithms")
    return fitting


def _padding(algorithm: str, digest: hashes.HashAlgorithm) -> padding.AsymmetricPadding:
    if algorithm.startswith("PS"):
        return padding.PSS(mgf=padding.MGF1(digest), salt_length=padding.PSS.DIGEST_LENGTH)
    return padding.PKCS1v15()


def _to_der(signature: bytes, size: int) -> bytes:
    """Convert a signature to DER. Raises ValueError if it is not two numbers of that size."""
    if len(signature) != 2 * size:
        raise ValueError("the signature has the wrong length")
    halves = signature[:size], signature[size:]
    return encode_dss_signature(*(int.from_bytes(half, "big") for half in halves))


def _key_id(public: Public) -> str:
    """Return the key ID as Kubernetes computes it: the hash of the public key."""
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encode_base64(hashlib.sha256(der).digest())


def _number(value: int) -> str:
    return encode_base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _int(jwk: dict[str, Any], name: str) -> int:
    value = jwk.get(name)
    if not isinstance(value, str) or len(value) > RSA_BITS_MAX:
        raise ValueError(f"its field {name} is not a number")
    return int.from_bytes(decode_base64(value), "big")
