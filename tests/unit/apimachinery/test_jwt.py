"""Signed tokens: canonical encoding, key algorithms, and rejected tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from restow.apimachinery import jwt
from restow.apimachinery.jwt import JwtInvalid
from restow.apimachinery.jwt_keys import (
    KEYS_MAX,
    KeySet,
    SigningKey,
    VerifyingKey,
    read_jwk,
    read_keys,
    read_signing_key,
)

EC_KEY = SigningKey(ec.generate_private_key(ec.SECP256R1()))
RSA_PRIVATE = rsa.generate_private_key(65537, 2048)
RSA_KEY = SigningKey(RSA_PRIVATE)
TRUSTED = KeySet([EC_KEY.public, RSA_KEY.public])
CLAIMS = {"iss": "https://issuer", "aud": ["a", "b"], "exp": 2_000_000_000}


def b64(data: bytes | str) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token(header: object, payload: object = CLAIMS, signature: bytes = b"nothing") -> str:
    parts = [each if isinstance(each, str) else json.dumps(each) for each in (header, payload)]
    return f"{b64(parts[0])}.{b64(parts[1])}.{b64(signature)}"


def check(text: str) -> dict[str, Any]:
    read = jwt.read(text)
    TRUSTED.check(read)
    return read.claims


GOOD = EC_KEY.sign(CLAIMS)
HEAD, BODY, SIGNATURE = GOOD.split(".")


def pem_of(key: SigningKey) -> bytes:
    public = key._private.public_key()
    return public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def shared_secret(key: SigningKey, algorithm: str = "HS256") -> str:
    """Return a token signed with the public key as a shared secret."""
    unsigned = token({"alg": algorithm, "kid": key.public.key_id}).rpartition(".")[0]
    mac = hmac.new(pem_of(key), unsigned.encode(), hashlib.sha256).digest()
    return f"{unsigned}.{b64(mac)}"


def signed(payload: str, header: str = "") -> str:
    """Return a correctly signed token, so that its content is rejected."""
    head = b64(header) if header else HEAD
    unsigned = f"{head}.{b64(payload)}"
    return f"{unsigned}.{b64(EC_KEY._signature(unsigned.encode()))}"


def with_last_changed(text: str) -> str:
    """Return the token with other unused bits in the last character."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:-1] + alphabet[alphabet.index(text[-1]) ^ 1]


BAD = {
    "alg none": token({"alg": "none"}, signature=b"x"),
    "alg none, no signature": f"{b64(json.dumps({'alg': 'none'}))}.{BODY}.",
    "alg None": token({"alg": "None", "kid": EC_KEY.public.key_id}),
    "alg missing": token({"kid": EC_KEY.public.key_id}),
    "alg no text": token({"alg": ["ES256"]}),
    "alg null": token({"alg": None}),
    "HS256 with the RSA public key": shared_secret(RSA_KEY),
    "HS256 with the EC public key": shared_secret(EC_KEY),
    "HS256 without kid": token({"alg": "HS256"}),
    "RS256 by the EC key": token({"alg": "RS256", "kid": EC_KEY.public.key_id}),
    "ES256 by the RSA key": token({"alg": "ES256", "kid": RSA_KEY.public.key_id}),
    "RS384, which the key is not for": token({"alg": "RS384", "kid": RSA_KEY.public.key_id}),
    "kid is a path": token({"alg": "ES256", "kid": "../../x"}),
    "kid is an absolute path": token({"alg": "ES256", "kid": "/dev/null"}),
    "kid is SQL": token({"alg": "ES256", "kid": "' or 1=1 --"}),
    "kid no text": token({"alg": "ES256", "kid": 7}),
    "kid too long": token({"alg": "ES256", "kid": "x" * 10_000}),
    "own key in the header": token({"alg": "ES256", "jwk": EC_KEY.public.as_jwk()}),
    "key by address": token({"alg": "ES256", "jku": "http://127.0.0.1:1/keys"}),
    "crit": signed("{}", '{"alg":"ES256","crit":["exp"]}'),
    "another key's signature": SigningKey(ec.generate_private_key(ec.SECP256R1())).sign(CLAIMS),
    "signature of other claims": f"{HEAD}.{b64(json.dumps({'iss': 'x'}))}.{SIGNATURE}",
    "signature cut": GOOD[:-2],
    "signature zero": f"{HEAD}.{BODY}.{b64(bytes(64))}",
    "signature as DER": f"{HEAD}.{BODY}.{b64(encode_dss_signature(1, 1))}",
    "signature missing": f"{HEAD}.{BODY}.",
    "1 MB": f"{HEAD}.{'A' * 1_000_000}.{SIGNATURE}",
    "empty": "",
    "no dots": "abc",
    "one dot": f"{HEAD}.{BODY}",
    "only dots": "..",
    "four parts": f"{GOOD}.x",
    "five parts": f"{GOOD}.x.y",
    "duplicate claim": signed('{"iss":"a","exp":5,"iss":"b"}'),
    "duplicate alg": signed("{}", '{"alg":"none","alg":"ES256"}'),
    "duplicate claim inside": signed('{"a":{"b":1,"b":2}}'),
    "padded base64": f"{HEAD}.{BODY}=.{SIGNATURE}",
    "standard base64": f"{HEAD}.{BODY}.{'+/' * 43}",
    "base64 with a line end": f"{HEAD}.{BODY}\n.{SIGNATURE}",
    "base64 with a space": f"{HEAD}. {BODY}.{SIGNATURE}",
    "base64 of impossible length": f"{HEAD}.{BODY}.AAAAA",
    "non-canonical signature": with_last_changed(GOOD),
    "non-canonical header": f"{with_last_changed(b64('{}'))}.{BODY}.{SIGNATURE}",
    "no ASCII": f"{HEAD}.{BODY}.ä",
    "huge number": signed('{"exp": 1' + "0" * 5_000 + "}"),
    "number beyond 64 bits": signed('{"exp": 18446744073709551617}'),
    "NaN": signed('{"exp": NaN}'),
    "Infinity": signed('{"exp": 1e999}'),
    "claims are a list": signed("[]"),
    "claims are null": signed("null"),
    "header is a text": token('"ES256"'),
    "too deep": signed("[" * 6_000 + "]" * 6_000),
    "no JSON": signed("iss=x"),
    "lone surrogate": signed('{"iss": "\\ud800"}'),
    "no UTF-8": f"{HEAD}.{b64(bytes([0x7B, 0xFF, 0x7D]))}.{SIGNATURE}",
    "byte order mark": f"{HEAD}.{b64(bytes([0xEF, 0xBB, 0xBF]) + json.dumps(CLAIMS).encode())}.{SIGNATURE}",  # noqa: E501
    "JSON serialization": json.dumps({"payload": BODY, "signature": SIGNATURE}),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses(name: str) -> None:
    """An invalid encoding, key or signature is rejected, and the message does not contain the
    token.
    """
    with pytest.raises(JwtInvalid) as caught:
        check(BAD[name])
    assert BODY not in str(caught.value)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize(
    "key",
    [
        EC_KEY,
        RSA_KEY,
        SigningKey(ec.generate_private_key(ec.SECP384R1())),
        SigningKey(ec.generate_private_key(ec.SECP521R1())),
    ],
    ids=lambda key: key.public.algorithm,
)
def test_signs_and_verifies(key: SigningKey) -> None:
    """A key verifies its own tokens, with and without key ID, and no other key does."""
    read = jwt.read(key.sign(CLAIMS))
    assert read.claims == CLAIMS
    assert (read.algorithm, read.key_id) == (key.public.algorithm, key.public.key_id)
    KeySet([key.public]).check(read)
    other = SigningKey(ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(JwtInvalid, match="no keys found"):
        KeySet([other.public]).check(read)


def test_without_a_key_id_all_keys_are_tried() -> None:
    """Tokens without a key ID are verified with each key."""
    unsigned = f"{b64(json.dumps({'alg': 'RS256'}))}.{BODY}"
    signature = RSA_PRIVATE.sign(unsigned.encode(), padding.PKCS1v15(), hashes.SHA256())
    assert check(f"{unsigned}.{b64(signature)}") == CLAIMS


def test_key_id_is_that_of_the_reference() -> None:
    """The key ID is the hash of the public key, as in Kubernetes."""
    public = RSA_PRIVATE.public_key()
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert RSA_KEY.public.key_id == b64(hashlib.sha256(der).digest())


@pytest.mark.parametrize("key", [EC_KEY, RSA_KEY], ids=["EC", "RSA"])
def test_jwk_round_trip(key: SigningKey) -> None:
    """A key that was published and parsed again verifies tokens of the original."""
    again = read_jwk(key.public.as_jwk(), algorithms=["RS256", "ES256"])
    assert again.key_id == key.public.key_id
    assert again.has_signed(jwt.read(key.sign(CLAIMS)))


@pytest.mark.parametrize(
    "change",
    [
        {"kty": "oct"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"n": 5},
        {"n": "?"},
        {"use": "enc"},
        {"alg": "HS256"},
        {"kid": 7},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "secp256k1"},
        {"n": "A" * 100_000},
    ],
)
def test_refuses_jwk(change: dict[str, Any]) -> None:
    """A published key that is not a valid signature key is rejected."""
    with pytest.raises(ValueError, match=r"."):
        read_jwk({**RSA_KEY.public.as_jwk(), **change}, algorithms=["RS256"])


def test_reads_all_keys_of_a_file() -> None:
    """A file may contain public and private keys of both types."""
    private = RSA_PRIVATE.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    found = read_keys(b"# mine\n" + pem_of(EC_KEY) + private)
    assert [key.key_id for key in found] == [EC_KEY.public.key_id, RSA_KEY.public.key_id]
    assert read_signing_key(private).public.key_id == RSA_KEY.public.key_id


def _pem(key: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"nothing",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        _pem(ed25519.Ed25519PrivateKey.generate()),
        _pem(rsa.generate_private_key(65537, 1024)),
        _pem(ec.generate_private_key(ec.SECP256K1())),
        b"x" * 2_000_000,
    ],
    ids=["empty", "text", "damaged", "ed25519", "short", "other curve", "large"],
)
def test_refuses_files(pem: bytes) -> None:
    """A file without a usable key is rejected, for signing and verifying."""
    with pytest.raises(ValueError, match=r"."):
        read_keys(pem)
    with pytest.raises(ValueError, match=r"."):
        read_signing_key(pem)


def test_keys_that_share_a_name_are_all_tried() -> None:
    """An issuer may publish several keys without a key ID; equal ones are deduplicated."""
    pair = [SigningKey(ec.generate_private_key(ec.SECP256R1())) for _ in range(2)]
    published = [{**key.public.as_jwk(), "kid": ""} for key in (*pair, *pair)]
    keys = KeySet([read_jwk(each, algorithms=["ES256"]) for each in published])
    assert len(keys.keys) == 2
    for key in pair:
        head, body, _ = key.sign(CLAIMS).split(".")
        head = b64(json.dumps({"alg": "ES256"}))
        signed = f"{head}.{body}"
        keys.check(jwt.read(f"{signed}.{b64(key._signature(signed.encode()))}"))


def test_too_many_keys() -> None:
    """The number of keys is limited, since a token without a key ID is verified with each."""
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    keys = [VerifyingKey(public, key_id=str(number)) for number in range(KEYS_MAX + 1)]
    with pytest.raises(ValueError, match=str(KEYS_MAX)):
        KeySet(keys)


@pytest.mark.parametrize("value", [True, "5", None, -1, 1e300, 10**15, [5], {}])
def test_invalid_times(value: object) -> None:
    """A time claim is a number of seconds within range."""
    with pytest.raises(JwtInvalid):
        jwt.moment({"exp": value}, "exp")


@pytest.mark.parametrize("value", [5, None, {}, [5], ["a", None]])
def test_invalid_audiences(value: object) -> None:
    """An audience is a string or a list of strings."""
    with pytest.raises(JwtInvalid):
        jwt.audiences({"aud": value})


def test_secrets_do_not_show() -> None:
    """The repr of a token or key contains neither signature nor claims."""
    shown = f"{jwt.read(GOOD)!r} {EC_KEY!r} {TRUSTED!r}"
    assert "issuer" not in shown
    assert SIGNATURE not in shown


@pytest.mark.parametrize("bits", [32, 2047])
def test_large_exponents(bits: int) -> None:
    """An RSA key whose exponent is larger than any in use is refused: with one of 3072 bits, one
    signature takes 30 ms to verify, and an issuer may publish 64 keys."""
    modulus = RSA_PRIVATE.public_key().public_numbers().n
    exponent = 1 << (bits - 1) | 1

    def number(value: int) -> str:
        return b64(value.to_bytes((value.bit_length() + 7) // 8))

    jwk = {"kty": "RSA", "n": number(modulus), "e": number(exponent)}
    with pytest.raises(ValueError, match="exponent"):
        read_jwk(jwk, algorithms=["RS256"])


@pytest.mark.parametrize("value", [[], {}, 5, None])
@pytest.mark.parametrize("field", ["kty", "crv", "x", "kid", "use", "alg"])
def test_fields_of_other_types(field: str, value: object) -> None:
    """A JWK whose fields are not strings is refused, and not an error of Python."""
    jwk = EC_KEY.public.as_jwk()
    if field in ("kid", "alg") and value is None:
        return  # as if absent
    with pytest.raises(ValueError, match=r"."):
        read_jwk(jwk | {field: value}, algorithms=["ES256"])
