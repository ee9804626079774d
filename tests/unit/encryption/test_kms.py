"""KMS v2, with a real plug-in on a socket."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery.names import GroupResource
from restow.encryption.configuration import KmsProvider, read_configuration
from restow.encryption.decryption import open_value
from restow.encryption.interface import NotPrepared
from restow.encryption.keyring import Keyring
from restow.encryption.kms import WRITE_SECONDS_MAX, Plugin
from restow.encryption.kms_messages import (
    AES_GCM_KEY,
    ANNOTATIONS_BYTES_MAX,
    HKDF_SEED,
    KmsEnvelope,
    read_envelope,
)
from restow.storage.errors import CannotOpen, Unavailable
from restow.storage.interface import Key
from tests.support.kms_plugin import ANNOTATION, KmsPlugin
from tests.unit.encryption.keys_for_tests import IDENTITY, document, kms

KEY: Final = Key("/registry/secrets/default/one")
VALUE: Final = b'{"kind":"Secret"}\n'
PREFIX: Final = b"k8s:enc:kms:v2:vault:"
CURRENT: Final = "kms:vault:key-1"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[KmsPlugin]:
    async with KmsPlugin(str(tmp_path / "kms.sock"), Runtime.simulated("plug-in")) as plugin:
        yield plugin


def plugin_of(service: KmsPlugin, runtime: Runtime | None = None) -> Plugin:
    # gRPC uses real time for its timeouts, whatever the clock is.
    return Plugin(KmsProvider("vault", service.socket, 0.3), runtime or Runtime.system())


@pytest.fixture
async def plugin(service: KmsPlugin) -> AsyncIterator[Plugin]:
    plugin = plugin_of(service)
    await plugin.poll()
    yield plugin
    await plugin.close()


async def another(service: KmsPlugin) -> bytes:
    """A value that another server has written."""
    server = plugin_of(service)
    await server.poll()
    sealed = server.seal(server.write_id(), KEY, VALUE)
    await server.close()
    return sealed


async def test_round_trip(plugin: Plugin, service: KmsPlugin) -> None:
    """A server encrypts and decrypts with one seed, and calls the plug-in once."""
    sealed = plugin.seal(CURRENT, KEY, VALUE)
    assert sealed != plugin.seal(CURRENT, KEY, VALUE)
    assert plugin.open(KEY, sealed) == (VALUE, CURRENT)
    assert service.calls == {"Status": 1, "Encrypt": 1}
    with pytest.raises(CannotOpen, match="moved from another key"):
        plugin.open(Key("/registry/secrets/default/two"), sealed)


async def test_golden(plugin: Plugin, service: KmsPlugin) -> None:
    """The stored format is that of Kubernetes, decrypted here with the libraries alone."""
    sealed = plugin.seal(CURRENT, KEY, VALUE)
    envelope, data = read_envelope(sealed, len(PREFIX))
    assert envelope.annotations == ((ANNOTATION, b"1"),)
    kek = AESGCM(hashlib.sha256(b"not a secret/key-1").digest())
    seed = kek.decrypt(envelope.source[:12], envelope.source[12:], None)
    own = hmac.new(seed, data[:32] + b"\x01", hashlib.sha256).digest()
    assert AESGCM(own).decrypt(data[32:44], data[44:], KEY.encode()) == VALUE


async def test_values_from_before_seeds(plugin: Plugin, service: KmsPlugin) -> None:
    """A value whose source is an AES-GCM key itself, as up to Kubernetes 1.28, can be decrypted."""
    dek = b"k" * 32
    kek = AESGCM(hashlib.sha256(b"not a secret/key-1").digest())
    source = b"n" * 12 + kek.encrypt(b"n" * 12, dek, None)
    data = b"m" * 12 + AESGCM(dek).encrypt(b"m" * 12, VALUE, KEY.encode())
    tail = KmsEnvelope("key-1", source, AES_GCM_KEY, ((ANNOTATION, b"1"),)).to_bytes()
    sealed = PREFIX + b"\x0a" + bytes([len(data)]) + data + tail
    with pytest.raises(NotPrepared):
        plugin.open(KEY, sealed)
    await plugin.prepare([sealed])
    assert plugin.open(KEY, sealed) == (VALUE, CURRENT)
    turned = PREFIX + tail + b"\x0a" + bytes([len(data)]) + data
    assert plugin.open(KEY, turned) == (VALUE, CURRENT)


async def test_seeds_of_others(plugin: Plugin, service: KmsPlugin) -> None:
    """Another server's seed is decrypted once, for any number of concurrent readers."""
    sealed = await another(service)
    with pytest.raises(NotPrepared):
        plugin.open(KEY, sealed)
    await plugin.prepare([sealed, sealed])
    assert plugin.open(KEY, sealed).value == VALUE
    await plugin.prepare([sealed])
    assert service.calls["Decrypt"] == 1


async def test_rotation(plugin: Plugin, service: KmsPlugin) -> None:
    """If the plug-in names another key, a seed is created under it; the old one can still write."""
    told: list[tuple[str, ...]] = []
    plugin.changed.subscribe(lambda: told.append(plugin.write_ids()))
    old = plugin.seal(CURRENT, KEY, VALUE)
    service.key_id = "key-2"
    await plugin.poll()
    await plugin.poll()
    assert told == [("kms:vault:key-2", CURRENT)]
    assert plugin.write_id() == "kms:vault:key-2"
    assert plugin.open(KEY, old).key_id == CURRENT
    assert plugin.open(KEY, plugin.seal(CURRENT, KEY, VALUE)).key_id == CURRENT
    assert plugin.open(KEY, plugin.seal("kms:vault:key-2", KEY, VALUE)).value == VALUE
    service.key_id = "key-1"
    await plugin.poll()
    assert plugin.write_id() == CURRENT
    assert service.calls["Encrypt"] == 2


@pytest.mark.parametrize(
    ("mood", "text"),
    [
        ("fail", "failed to perform status section of the healthz check for KMS Provider vault"),
        ("hang", "DEADLINE_EXCEEDED"),
        (
            "garbage",
            "KMSv2 API version v2, got v9, got invalid KMSv2 KeyID: keyID is empty",
        ),
        ("unhealthy", "kmsv2 Provider vault is not healthy, error: got unexpected healthz status"),
    ],
)
async def test_plugin_health(mood: str, text: str, plugin: Plugin, service: KmsPlugin) -> None:
    """Problems of a plug-in are reported, writes continue meanwhile, and it may recover."""
    told: list[str] = []
    plugin.changed.subscribe(lambda: told.append(plugin.problem))
    service.mood = mood  # type: ignore[assignment]
    await plugin.poll()
    assert text in plugin.problem
    assert plugin.open(KEY, plugin.seal(CURRENT, KEY, VALUE)).value == VALUE
    service.mood = "well"
    await plugin.poll()
    assert told == [""]


async def test_writes_end_some_time_after_the_last_response(service: KmsPlugin) -> None:
    """A plug-in that stops confirming its key is not used for writes forever; reads continue."""
    clock = SimulatedClock()
    plugin = plugin_of(service, Runtime.simulated(1, clock=clock))
    await plugin.poll()
    sealed = plugin.seal(CURRENT, KEY, VALUE)
    service.mood = "fail"
    await clock.advance(WRITE_SECONDS_MAX + 1)
    await plugin.poll()
    with pytest.raises(Unavailable, match="has not confirmed its key for 180 s"):
        plugin.seal(CURRENT, KEY, VALUE)
    assert plugin.open(KEY, sealed).value == VALUE
    service.mood = "well"
    await plugin.poll()
    assert plugin.seal(CURRENT, KEY, VALUE)
    await clock.run_until_done(plugin.close())


async def test_a_plugin_that_comes_later(tmp_path: Path) -> None:
    """Until a plug-in is reachable its key is unknown; then it is used."""
    service = KmsPlugin(str(tmp_path / "late.sock"), Runtime.simulated(1))
    plugin = plugin_of(service)
    await plugin.poll()
    with pytest.raises(Unavailable, match="has not named a key yet: failed to perform status"):
        plugin.write_id()
    with pytest.raises(Unavailable, match="no seed"):
        plugin.seal(CURRENT, KEY, VALUE)
    async with service:
        while plugin.problem:
            await plugin.poll()
        assert plugin.write_id() == CURRENT
    await plugin.close()


@pytest.mark.parametrize("mood", ["fail", "hang"])
async def test_unresponsive_plugin_while_reading(
    mood: str, plugin: Plugin, service: KmsPlugin
) -> None:
    """A reader whose seed is not decrypted gets a retryable error; others do not wait for it."""
    sealed = await another(service)
    service.decrypts_badly = mood  # type: ignore[assignment]
    for _ in range(3):
        with pytest.raises(Unavailable, match="cannot decrypt"):
            await plugin.prepare([sealed])
    assert service.calls["Decrypt"] == 1
    service.decrypts_badly = "well"
    told: list[bool] = []
    plugin.changed.subscribe(lambda: told.append(True))
    await plugin.poll()
    assert told == [True]
    await plugin.prepare([sealed])
    assert plugin.open(KEY, sealed).value == VALUE


async def test_a_seed_that_is_refused(plugin: Plugin, service: KmsPlugin) -> None:
    """A seed that the plug-in rejects is reported, does not stop others, and may recover."""
    sealed = await another(service)
    service.forgotten.add("key-1")
    await plugin.prepare([sealed])
    with pytest.raises(CannotOpen, match="under its key key-1, and the plug-in cannot decrypt"):
        plugin.open(KEY, sealed)
    service.forgotten.clear()
    told: list[bool] = []
    plugin.changed.subscribe(lambda: told.append(True))
    await plugin.poll()
    assert told == [True]
    assert plugin.open(KEY, sealed).value == VALUE


async def test_tried_keys_are_reported(plugin: Plugin) -> None:
    """To tell a damaged value from a missing key: by the key ID that the value names, or, if that
    is unreadable, by the plug-in alone."""
    sealed = plugin.seal(plugin.write_id(), KEY, VALUE)
    assert plugin.open(KEY, sealed).value == VALUE
    changed = bytearray(sealed)
    changed[len(plugin.prefix) + 20] ^= 1
    for value, tried in (
        (bytes(changed), plugin.write_id()),
        (plugin.prefix + b"nonsense", f"kms:{plugin.name}:*"),
    ):
        with pytest.raises(CannotOpen) as refusal:
            plugin.open(KEY, value)
        assert refusal.value.tried == (tried,)


async def test_garbage_for_a_seed(plugin: Plugin, service: KmsPlugin) -> None:
    """A plug-in that returns wrong bytes decrypts nothing, and is called again the next time."""
    sealed = await another(service)
    service.decrypts_badly = "garbage"
    await plugin.prepare([sealed])
    with pytest.raises(CannotOpen, match="the seed that the plug-in returned cannot decrypt it"):
        plugin.open(KEY, sealed)
    service.decrypts_badly = "well"
    await plugin.prepare([sealed])
    assert plugin.open(KEY, sealed).value == VALUE


@pytest.mark.parametrize(
    ("envelope", "problem"),
    [
        (KmsEnvelope("", b"x", HKDF_SEED), "keyID is empty"),
        (KmsEnvelope("k" * 1025, b"x", HKDF_SEED), "keyID is 1025 bytes, which exceeds"),
        (KmsEnvelope("k", b"", HKDF_SEED), "encrypted DEK source is empty"),
        (KmsEnvelope("k", b"x" * 1025, HKDF_SEED), "encrypted DEK source is 1025 bytes"),
        (KmsEnvelope("k", b"x", 2), "unknown encryptedDEKSourceType: 2"),
        (KmsEnvelope("k", b"x", HKDF_SEED, (("plain", b""),)), "a domain with at least one dot"),
        (
            KmsEnvelope("k", b"x", HKDF_SEED, (("a.b", b"x" * ANNOTATIONS_BYTES_MAX),)),
            "total size of annotations is 32771",
        ),
    ],
)
async def test_limits_of_envelopes(envelope: KmsEnvelope, problem: str, plugin: Plugin) -> None:
    """A value beyond Kubernetes' limits is damaged, and the plug-in is not called."""
    sealed = PREFIX + b"\x0a\x01x" + envelope.to_bytes()
    await plugin.prepare([sealed])
    with pytest.raises(CannotOpen, match=problem):
        plugin.open(KEY, sealed)


async def test_damaged_values(plugin: Plugin) -> None:
    """Every truncated value is rejected, and none raises another error."""
    sealed = plugin.seal(CURRENT, KEY, VALUE)
    for size in range(len(PREFIX), len(sealed)):
        with pytest.raises((CannotOpen, NotPrepared)):
            plugin.open(KEY, sealed[:size])


async def test_as_a_part_of_a_keyring(plugin: Plugin, service: KmsPlugin) -> None:
    """A ring with a plug-in can read all keys of that plug-in, and calls it when necessary."""
    configuration = read_configuration(document(("secrets", [kms(service.endpoint), IDENTITY])))
    ring = Keyring(configuration, Runtime.system(), plugins={"vault": plugin})

    secrets = GroupResource("", "secrets")
    assert ring.write_key(secrets) == CURRENT
    assert ring.readable(secrets) == ("kms:vault:*", "identity")
    assert ring.writable(secrets) == (CURRENT, "")
    assert ring.open(KEY, ring.seal(CURRENT, KEY, VALUE)) == (VALUE, CURRENT)
    assert await open_value(ring, KEY, await another(service)) == (VALUE, CURRENT)
    assert ring.problem() == ""
    service.mood = "unhealthy"
    await plugin.poll()
    assert ring.problem().startswith("kms-provider-0: kmsv2 Provider vault is not healthy")
