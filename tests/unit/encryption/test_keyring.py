"""Sealing and opening with the keys of a configuration."""

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
    """The payload as the libraries make it, with no code of ours."""
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
    """What the libraries make by hand, behind kube-apiserver's prefix, is opened."""
    ring = ring_of(local(cipher, "a"))
    sealed = f"k8s:enc:{cipher}:v1:a:".encode() + made_by_hand(cipher, SECRETS["a"], KEY, VALUE)
    assert ring.open(KEY, sealed) == (VALUE, ring.write_key(SECRET))


@pytest.mark.parametrize("cipher", CIPHERS)
@given(value=st.binary(max_size=100))
def test_round_trip(cipher: str, value: bytes) -> None:
    """Whatever is sealed is opened again, and says under which key it was."""
    ring = ring_of(local(cipher, "a", "b"))
    for key_id in ring.writable(SECRET)[:2]:
        sealed = ring.seal(key_id, KEY, value)
        assert sealed.startswith(f"k8s:enc:{cipher}:v1:{key_id.split(':')[1]}:".encode())
        assert ring.open(KEY, sealed) == (value, key_id)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_no_two_are_alike(cipher: str) -> None:
    """The same value is never sealed to the same bytes twice."""
    ring = ring_of(local(cipher, "a"))
    key_id = ring.write_key(SECRET)
    assert len({ring.seal(key_id, KEY, VALUE) for _ in range(100)}) == 100


@pytest.mark.parametrize("cipher", ["aesgcm", "secretbox"])
@given(place=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_a_changed_bit_is_noticed(cipher: str, place: int, bit: int) -> None:
    """One bit of the payload changed, anywhere, and nothing is opened. (aescbc cannot tell.)"""
    ring = ring_of(local(cipher, "a"))
    sealed = bytearray(ring.seal(ring.write_key(SECRET), KEY, VALUE))
    begin = len(f"k8s:enc:{cipher}:v1:a:")
    sealed[begin + place % (len(sealed) - begin)] ^= 1 << bit
    with pytest.raises(CannotOpen):
        ring.open(KEY, bytes(sealed))


@pytest.mark.parametrize("cipher", CIPHERS)
def test_what_is_cut_off_is_never_opened_as_something_else(cipher: str) -> None:
    """Every part of a sealed value is refused, or is not what it was (aescbc has no seal)."""
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
    """aesgcm binds a value to its key in the store; secretbox, like aescbc, has no way to."""
    ring = ring_of(local(cipher, "a"))
    sealed = ring.seal(ring.write_key(SECRET), KEY, VALUE)
    if is_bound:
        with pytest.raises(CannotOpen, match="moved from another key"):
            ring.open(OTHER, sealed)
    else:
        assert ring.open(OTHER, sealed).value == VALUE


@pytest.mark.parametrize("cipher", ["aesgcm", "secretbox"])
def test_another_secret_of_that_name(cipher: str) -> None:
    """The error names provider and key and says what may be wrong; the secret is not in it."""
    sealed = ring_of(local(cipher, "a")).seal(
        ring_of(local(cipher, "a")).write_key(SECRET), KEY, VALUE
    )
    with pytest.raises(CannotOpen, match=f"{cipher} key a, and the key of that name does not open"):
        ring_of(local(cipher, "a=b")).open(KEY, sealed)


def test_a_missing_key() -> None:
    """A value under a key that this server does not have is named, with what to do."""
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
    """Plain values are read where identity is, first or not, and refused where it is not."""
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
def test_what_says_that_it_is_encrypted_is_never_plain(value: bytes) -> None:
    """Identity refuses it, whatever comes behind."""
    for ring in (keyring(("secrets", [IDENTITY])), ring_of(local("aesgcm", "a"))):
        with pytest.raises(CannotOpen):
            ring.open(KEY, value)


def test_the_first_provider_writes() -> None:
    """Also when it is identity, in front of those that are rotated away from."""
    away = keyring(("secrets", [IDENTITY, local("aescbc", "a")]))
    assert away.write_key(SECRET) == ""
    assert away.seal("", KEY, VALUE) == VALUE
    assert away.writable(SECRET)[0] == ""
    assert is_readable("", away.readable(SECRET))
    assert is_readable(away.writable(SECRET)[1], away.readable(SECRET))


def test_a_key_that_is_gone() -> None:
    """To write with a key that is no longer there is tried again later, not done otherwise."""
    for key_id in ("aesgcm:b:000000000000", "kms:vault:1", "what"):
        with pytest.raises(Unavailable):
            ring_of(local("aesgcm", "a")).seal(key_id, KEY, VALUE)


def test_ids_tell_secrets_apart() -> None:
    """The same name and secret have one id on all servers, another secret has another."""
    # Written down, since it may never change: it stands in what servers tell one another.
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
    """A value's resource is known from its key, as the kinds say, or by group and plural."""
    assert str(resource_at(root)) == resource
    ring = keyring((resource, [local("aesgcm", "a")]))
    with pytest.raises(CannotOpen):
        ring.open(Key(f"/registry/{root}/x"), VALUE)
