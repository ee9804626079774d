"""Encryption and decryption with the keys of a configuration."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import nacl.secret
import pytest
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.names import GroupResource
from restow.apis.encryption_keys import is_readable
from restow.encryption.keyring import Keyring, resource_at
from restow.storage.errors import CannotOpen, Unavailable
from restow.storage.interface import Key
from tests.unit.encryption.keys_for_tests import IDENTITY, SECRETS, keyring, local

SECRET: Final = GroupResource("", "secrets")
KEY: Final = Key("/registry/secrets/default/one")
OTHER: Final = Key("/registry/secrets/default/two")
CIPHERS: Final = ("aescbc", "aesgcm", "secretbox")
VALUE: Final = b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"one"}}\n'


def ring_of(*providers: dict[str, object]) -> Keyring:
    return keyring(("secrets", [*providers, IDENTITY]))


def made_by_hand(cipher: str, secret: bytes, key: str, value: bytes) -> bytes:
    """The payload as the libraries create it, without restow's code."""
    if cipher == "aesgcm":
        return b"n" * 12 + AESGCM(secret).encrypt(b"n" * 12, value, key.encode())
    if cipher == "secretbox":
        return bytes(nacl.secret.SecretBox(secret).encrypt(value, b"n" * 24))
    padder = padding.PKCS7(128).padder()
    context = Cipher(algorithms.AES(secret), modes.CBC(b"n" * 16)).encryptor()
    padded = padder.update(value) + padder.finalize()
    return b"n" * 16 + context.update(padded) + context.finalize()


@pytest.mark.parametrize("cipher", CIPHERS)
def test_golden(cipher: str) -> None:
    """A payload of the libraries, with kube-apiserver's prefix, can be decrypted."""
    ring = ring_of(local(cipher, "a"))
    sealed = f"k8s:enc:{cipher}:v1:a:".encode() + made_by_hand(cipher, SECRETS["a"], KEY, VALUE)
    assert ring.open(KEY, sealed) == (VALUE, ring.write_key(SECRET))


@pytest.mark.parametrize("cipher", CIPHERS)
@given(value=st.binary(max_size=100))
def test_round_trip(cipher: str, value: bytes) -> None:
    """Every encrypted value can be decrypted, and reports its key."""
    ring = ring_of(local(cipher, "a", "b"))
    for key_id in ring.writable(SECRET)[:2]:
        sealed = ring.seal(key_id, KEY, value)
        assert sealed.startswith(f"k8s:enc:{cipher}:v1:{key_id.split(':')[1]}:".encode())
        assert ring.open(KEY, sealed) == (value, key_id)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_ciphertexts_are_unique(cipher: str) -> None:
    """The same value is never encrypted to the same bytes twice."""
    ring = ring_of(local(cipher, "a"))
    key_id = ring.write_key(SECRET)
    assert len({ring.seal(key_id, KEY, VALUE) for _ in range(100)}) == 100


@pytest.mark.parametrize("cipher", ["aesgcm", "secretbox"])
@given(place=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_a_changed_bit_is_detected(cipher: str, place: int, bit: int) -> None:
    """One changed bit anywhere in the payload prevents decryption. (aescbc cannot detect it.)"""
    ring = ring_of(local(cipher, "a"))
    sealed = bytearray(ring.seal(ring.write_key(SECRET), KEY, VALUE))
    begin = len(f"k8s:enc:{cipher}:v1:a:")
    sealed[begin + place % (len(sealed) - begin)] ^= 1 << bit
    with pytest.raises(CannotOpen):
        ring.open(KEY, bytes(sealed))


@pytest.mark.parametrize("cipher", CIPHERS)
def test_truncated_values_are_never_decrypted_wrongly(cipher: str) -> None:
    """Every truncated value is rejected, or differs (aescbc does not authenticate)."""
    ring = ring_of(local(cipher, "a"))
    sealed = ring.seal(ring.write_key(SECRET), KEY, VALUE)
    for size in range(len("k8s:enc:"), len(sealed)):
        try:
            opened = ring.open(KEY, sealed[:size]).value
        except CannotOpen:
            continue
        assert cipher == "aescbc"
        assert opened != VALUE


@pytest.mark.parametrize(("cipher", "is_bound"), [("aesgcm", True), ("secretbox", False)])
def test_a_value_moved_to_another_key(cipher: str, is_bound: bool) -> None:
    """aesgcm binds a value to its storage key; secretbox and aescbc cannot."""
    ring = ring_of(local(cipher, "a"))
    sealed = ring.seal(ring.write_key(SECRET), KEY, VALUE)
    if is_bound:
        with pytest.raises(CannotOpen, match="moved from another key"):
            ring.open(OTHER, sealed)
    else:
        assert ring.open(OTHER, sealed).value == VALUE


@pytest.mark.parametrize("cipher", ["aesgcm", "secretbox"])
def test_another_secret_of_that_name(cipher: str) -> None:
    """The error names provider and key and possible causes; it does not contain the secret."""
    sealed = ring_of(local(cipher, "a")).seal(
        ring_of(local(cipher, "a")).write_key(SECRET), KEY, VALUE
    )
    with pytest.raises(CannotOpen, match=f"{cipher} key a, and the key of that name cannot"):
        ring_of(local(cipher, "a=b")).open(KEY, sealed)


def test_a_missing_key() -> None:
    """The error of a value under a missing key names the key and the remedy."""
    old = ring_of(local("aesgcm", "a"))
    sealed = old.seal(old.write_key(SECRET), KEY, VALUE)
    for ring in (ring_of(local("aesgcm", "b")), keyring(("pods", [local("aesgcm", "a")]))):
        with pytest.raises(CannotOpen, match="aesgcm key a, which this server does not have: add"):
            ring.open(KEY, sealed)


def test_two_secrets_of_one_name() -> None:
    """When a file has two providers with a key of one name, both are tried."""
    both = keyring(("secrets", [local("aesgcm", "a"), local("aesgcm", "a=b"), IDENTITY]))
    first, second, plain = both.writable(SECRET)
    assert plain == ""
    assert first != second
    assert both.readable(SECRET) == (first, second, "identity")
    for key_id in (first, second):
        assert both.open(KEY, both.seal(key_id, KEY, VALUE)) == (VALUE, key_id)


def test_plain_values() -> None:
    """Plain values can be read where identity is listed, first or not, and are rejected
    elsewhere."""
    for ring in (ring_of(local("aesgcm", "a")), keyring(("secrets", [IDENTITY]))):
        assert ring.open(KEY, VALUE) == (VALUE, "")
    strict = keyring(("secrets", [local("aesgcm", "a")]))
    with pytest.raises(CannotOpen, match="it is not encrypted"):
        strict.open(KEY, VALUE)
    assert strict.open(Key("/registry/pods/default/a"), VALUE) == (VALUE, "")
    assert strict.open(Key("/restow/servers/a"), b"{}") == (b"{}", "")


@pytest.mark.parametrize(
    "value",
    [
        b"k8s:enc:",
        b"k8s:enc:aesgcm",
        b"k8s:enc:aesgcm:v1:a",
        b"k8s:enc:::::",
        b"k8s:enc:\xff:v1:\0:",
    ],
)
def test_a_value_with_an_encryption_prefix_is_never_plain(value: bytes) -> None:
    """Identity rejects it, whatever follows the prefix."""
    for ring in (keyring(("secrets", [IDENTITY])), ring_of(local("aesgcm", "a"))):
        with pytest.raises(CannotOpen):
            ring.open(KEY, value)


def test_the_first_provider_writes() -> None:
    """Also if it is identity, before the keys that are being removed."""
    away = keyring(("secrets", [IDENTITY, local("aescbc", "a")]))
    assert away.write_key(SECRET) == ""
    assert away.seal("", KEY, VALUE) == VALUE
    assert away.writable(SECRET)[0] == ""
    assert is_readable("", away.readable(SECRET))
    assert is_readable(away.writable(SECRET)[1], away.readable(SECRET))


def test_a_removed_key() -> None:
    """Writing with a key that was removed is retried later, not done with another key."""
    for key_id in ("aesgcm:b:000000000000", "kms:vault:1", "what"):
        with pytest.raises(Unavailable):
            ring_of(local("aesgcm", "a")).seal(key_id, KEY, VALUE)


def test_ids_tell_secrets_apart() -> None:
    """The same name and secret have one ID on all servers; another secret has another ID."""
    # Spelled out, since it must never change: servers exchange these IDs.
    assert ring_of(local("aesgcm", "a")).write_key(SECRET) == "aesgcm:a:a71d144e72fc"
    label = b"restow: fingerprint of an encryption key"
    assert hmac.new(SECRETS["a"], label, hashlib.sha256).hexdigest().startswith("a71d144e72fc")
    ids = {ring_of(local("aesgcm", f"a={name}")).write_key(SECRET) for name in SECRETS}
    assert len(ids) == len(SECRETS)


@pytest.mark.parametrize(
    ("root", "resource"),
    [
        ("secrets", "secrets"),
        ("services/specs", "services"),
        ("services/endpoints", "endpoints"),
        ("minions", "nodes"),
        ("ingress", "ingresses.networking.k8s.io"),
        ("deployments", "deployments.apps"),
        ("events", "events"),
        ("apiregistration.k8s.io/apiservices", "apiservices.apiregistration.k8s.io"),
        ("example.com/widgets", "widgets.example.com"),
    ],
)
def test_keys_tell_their_resource(root: str, resource: str) -> None:
    """A value's resource is known from its storage key, by kind, or by group and plural."""
    assert str(resource_at(root)) == resource
    ring = keyring((resource, [local("aesgcm", "a")]))
    with pytest.raises(CannotOpen):
        ring.open(Key(f"/registry/{root}/x"), VALUE)
