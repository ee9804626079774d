"""Client of a KMS v2 plug-in: the plug-in has one key, which encrypts the seeds of this server.

The plug-in's status is polled; when it names another key, a new seed is generated and encrypted
under it. Values under other seeds can be decrypted after the plug-in has decrypted those seeds
once. Writes continue for some minutes after the plug-in stopped responding, as in kube-apiserver;
reads of known seeds continue indefinitely.

Before a server writes under a key that is new to it, it must decrypt a probe that another server
encrypted under it (`kms_probes`): two plug-ins of one name may have different keys.

Not here: the format of values (`kms_seeds`), the socket (`kms_channel`), and which resources are
encrypted (`keyring`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from restow.aio import Backoff, Clock, Runtime, TaskHandle
from restow.aio.events import EventChannel
from restow.apis.encryption_keys import ANY
from restow.encryption.configuration import KmsProvider
from restow.encryption.interface import NotPrepared, Opened
from restow.encryption.kms_channel import Channel, KmsCallFailed, KmsFailureCause
from restow.encryption.kms_messages import (
    DECRYPT,
    ENCRYPT,
    HKDF_SEED,
    STATUS,
    KmsEnvelope,
    annotations_of,
    problem_of_key_id,
    read_envelope,
)
from restow.encryption.kms_probes import PROBE, KmsProbes, probe_key, why_refused
from restow.encryption.kms_seeds import SEED_BYTES, Seed, cut
from restow.encryption.providers import WrongKey
from restow.storage.errors import CannotOpen, PluginSilent, StorageError, Unavailable
from restow.storage.interface import Key

POLL_SECONDS: Final = 60.0
RETRY_SECONDS_MAX: Final = 10.0
"""After a failure it is polled sooner."""
EARLY_POLL_SECONDS: Final = 1.0
"""A failed read triggers a poll this soon; until that succeeds, other reads fail at once."""
WRITE_SECONDS_MAX: Final = 180.0
"""How long a seed is used for writes after the plug-in last confirmed its key."""
SEEDS_MAX: Final = 1024
WRITE_SEEDS_MAX: Final = 4
REFUSALS_MAX: Final = 256
REFUSALS_ASKED_AGAIN_MAX: Final = 16
DECRYPTS_MAX: Final = 8
"""Concurrent decryptions of seeds."""
_VERSIONS: Final = ("v2", "v2beta1")
_RESERVED: Final = "*"
"""All keys of a plug-in, in the readable keys of a server."""

logger = logging.getLogger(__name__)


class Plugin:
    """One plug-in, and the seeds that it has encrypted or decrypted."""

    def __init__(
        self,
        provider: KmsProvider,
        runtime: Runtime,
        *,
        probes: KmsProbes | None = None,
        poll_seconds: float = POLL_SECONDS,
        retry_seconds_max: float = RETRY_SECONDS_MAX,
    ) -> None:
        self.provider = provider
        self.name = provider.name
        self.prefix = f"k8s:enc:kms:v2:{provider.name}:".encode()
        self.changed: EventChannel[[]] = EventChannel()
        """Called when the write key or the readable keys have changed."""
        self.problem = "it has not been polled yet"
        """The problem of the plug-in; empty: none."""
        self.refusal = ""
        """The reason why it must not be used, if its keys differ from those of other servers."""
        self._probes = probes
        self._clock: Clock = runtime.clock
        self._draw = runtime.randomness.token_bytes
        self._ids = runtime.ids
        self._tasks = runtime.tasks(f"kms {provider.name}")
        self._poll_seconds = poll_seconds
        self._backoff = Backoff(
            initial_seconds=min(EARLY_POLL_SECONDS, retry_seconds_max),
            factor=2,
            max_seconds=retry_seconds_max,
            jitter=0,
        )
        self._channel = Channel(
            provider.socket, timeout_seconds=provider.timeout_seconds, clock=runtime.clock
        )
        self._version = ""
        self._writing: dict[str, Seed] = {}  # by key ID, the newest last
        self._writes_until = 0.0
        self._seeds: OrderedDict[bytes, Seed] = OrderedDict()  # by tail, in order of last use
        self._refusals: OrderedDict[bytes, tuple[KmsEnvelope, str]] = OrderedDict()
        self._asking: dict[bytes, TaskHandle] = {}
        self._decrypt_slots = asyncio.Semaphore(DECRYPTS_MAX)
        self._decrypt_problem = ""
        """The reason why the last decryption of a seed failed; empty: it succeeded."""
        self._unanswered: tuple[bytes, KmsEnvelope] | None = None
        """That seed: it is decrypted again to check whether the plug-in works again."""
        self._poll_soon = asyncio.Event()
        self._polling = asyncio.Lock()

    async def start(self) -> None:
        """Poll once, then periodically. A plug-in may start later than this server."""
        await self.poll()
        self._tasks.spawn_loop("poll", self._follow())

    async def close(self) -> None:
        await self._tasks.close()
        await self._channel.close()

    @property
    def trouble(self) -> str:
        """The problem of the plug-in as of its last response to any call; empty: none."""
        if self.problem or not self._decrypt_problem:
            return self.problem
        return f"kmsv2 Provider {self.name} cannot decrypt, error: {self._decrypt_problem}"

    # Writing.

    def write_ids(self) -> tuple[str, ...]:
        """The IDs of the keys that can encrypt new values, the plug-in's current one first."""
        return tuple(seed.key_id for seed in reversed(self._writing.values()))

    def write_id(self) -> str:
        """The ID of the plug-in's current key. Raises `Unavailable` until it has named one."""
        for seed in reversed(self._writing.values()):
            return seed.key_id
        text = f"the KMS plug-in {self.name} has not named a key yet"
        raise Unavailable(f"{text}: {self.problem}", client_message=text)

    def seal(self, key_id: str, key: str, value: bytes) -> bytes:
        """Encrypt a value. Raises `Unavailable` if there is no seed under that key, or it is too
        old."""
        for seed in self._writing.values():
            if seed.key_id == key_id:
                break
        else:
            raise Unavailable(f"this server has no seed under {key_id} of the KMS plug-in")
        if self._clock.monotonic() > self._writes_until:
            text = (
                f"the KMS plug-in {self.name} has not confirmed its key for"
                f" {WRITE_SECONDS_MAX:.0f} s, so nothing is written under it"
            )
            raise Unavailable(f"{text}: {self.problem}", client_message=text)
        return seed.seal(key, value)

    # Reading.

    def open(self, key: str, value: bytes) -> Opened:
        """Decrypt a value. Raises `CannotOpen`; `NotPrepared` if its seed must be decrypted
        first."""
        begin = len(self.prefix)
        found = cut(value, begin)
        seed = self._seeds.get(found.tail) if found is not None else None
        if seed is None or found is None:
            seed, data = self._find(value)
        else:
            data = found.data
        try:
            opened = seed.open(key, data)
        except WrongKey:
            if not seed.is_proven:
                self._seeds.pop(seed.tail, None)  # the plug-in may return another seed next time
            raise CannotOpen(
                f"it is encrypted with the KMS plug-in {self.name} under its key"
                f" {seed.key_id.split(':', 2)[2]}, and the seed that the plug-in returned cannot"
                " decrypt it: the value was changed, or moved from another key of the store, or"
                " the plug-in has another key of that ID",
                tried=(seed.key_id,),
            ) from None
        return Opened(opened, seed.key_id)

    def _find(self, value: bytes) -> tuple[Seed, bytes]:
        """Look up the seed of a value whose envelope is unknown, or has another field order."""
        envelope, data = self._read(value)
        tail = envelope.to_bytes()
        seed = self._seeds.get(tail)
        if seed is not None:
            return seed, data
        if tail in self._refusals:
            raise CannotOpen(
                f"it is encrypted with the KMS plug-in {self.name} under its key"
                f" {envelope.key_id}, and the plug-in cannot decrypt that:"
                f" {self._refusals[tail][1]}; restore that key in the plug-in",
                tried=(f"kms:{self.name}:{envelope.key_id}",),
            )
        raise NotPrepared

    def _read(self, value: bytes) -> tuple[KmsEnvelope, bytes]:
        try:
            return read_envelope(value, len(self.prefix))
        except ValueError as error:
            raise CannotOpen(
                f"it is encrypted with the KMS plug-in {self.name}, and damaged: {error}",
                tried=(f"kms:{self.name}:{ANY}",),
            ) from None

    async def prepare(self, values: Iterable[bytes]) -> None:
        """Decrypt the seeds of values. Raises `Unavailable` when the plug-in does not respond."""
        wanted: dict[bytes, KmsEnvelope] = {}
        for value in values:
            found = cut(value, len(self.prefix))
            if found is not None and found.tail in self._seeds:
                self._seeds.move_to_end(found.tail)
                continue
            try:
                envelope, _ = self._read(value)
            except CannotOpen:
                continue  # `open` reports the error
            wanted[envelope.to_bytes()] = envelope
        waiting = []
        for tail, envelope in wanted.items():
            if tail in self._seeds or tail in self._refusals:
                continue
            if self._decrypt_problem:
                raise self._unavailable()
            if tail not in self._asking:
                self._asking[tail] = self._tasks.spawn(
                    "decrypt", self._decrypt_in_slot(tail, envelope)
                )
            waiting.append((tail, self._asking[tail]))
        for tail, task in waiting:
            await task.wait()
            if tail not in self._seeds and tail not in self._refusals:
                raise self._unavailable()

    def _unavailable(self) -> Unavailable:
        text = f"the KMS plug-in {self.name} cannot decrypt"
        return PluginSilent(f"{text}: {self._decrypt_problem}", client_message=text)

    async def _decrypt_in_slot(self, tail: bytes, envelope: KmsEnvelope) -> None:
        try:
            async with self._decrypt_slots:
                await self._decrypt(tail, envelope)
        finally:
            del self._asking[tail]

    async def _decrypt(self, tail: bytes, envelope: KmsEnvelope) -> None:
        """Decrypt a seed, and record it, its rejection, or that the plug-in does not respond."""
        try:
            response = await self._channel.call(
                DECRYPT,
                ciphertext=envelope.source,
                uid=self._ids.uid(),
                key_id=envelope.key_id,
                annotations=[{"key": key, "value": text} for key, text in envelope.annotations],
            )
            seed = self._seed(response.plaintext, envelope)
        except KmsCallFailed as failed:
            if failed.cause is KmsFailureCause.REFUSED or (
                failed.cause is KmsFailureCause.DOUBTFUL and not await self._status_problem()
            ):
                # A healthy plug-in that cannot decrypt this seed rejects it permanently.
                self._refuse(tail, envelope, str(failed))
            else:
                self._unanswered = (tail, envelope)
                self._mark_unresponsive(str(failed))
        except ValueError as error:
            self._refuse(tail, envelope, str(error))
        else:
            self._refusals.pop(tail, None)
            self._keep(seed)

    def _seed(self, secret: bytes, envelope: KmsEnvelope) -> Seed:
        return Seed(secret, envelope, prefix=self.prefix, plugin=self.name, draw=self._draw)

    def _keep(self, seed: Seed) -> None:
        self._seeds[seed.tail] = seed
        while len(self._seeds) > SEEDS_MAX:
            self._seeds.popitem(last=False)

    def _refuse(self, tail: bytes, envelope: KmsEnvelope, why: str) -> None:
        logger.warning("the KMS plug-in %s cannot decrypt a seed: %s", self.name, why)
        self._refusals[tail] = (envelope, why)
        while len(self._refusals) > REFUSALS_MAX:
            self._refusals.popitem(last=False)

    def _mark_unresponsive(self, why: str) -> None:
        if not self._decrypt_problem:
            logger.warning("the KMS plug-in %s does not respond: %s", self.name, why)
            self._poll_soon.set()
        self._decrypt_problem = why

    # Polling.

    async def _follow(self) -> None:
        failures = 0
        while True:
            seconds = self._poll_seconds
            if self.trouble:
                seconds = self._backoff.ceiling_seconds(failures)
            try:
                async with self._clock.timeout(seconds):
                    await self._poll_soon.wait()
                await self._clock.sleep(min(EARLY_POLL_SECONDS, seconds))
            except TimeoutError:
                pass
            self._poll_soon.clear()
            await self.poll()
            failures = failures + 1 if self.trouble else 0

    async def poll(self) -> None:
        """Poll the status, and switch to another key if the plug-in did. Never raises."""
        async with self._polling:
            had_problem, had_silence = bool(self.problem), bool(self._decrypt_problem)
            before = self.write_ids()
            problem = await self._poll()
            if problem and problem != self.problem:
                logger.warning("%s", problem)
            self.problem = problem
            is_richer = False
            if not problem and await self._has_recovered():
                is_richer = await self._retry_refused()
        recovered = not self.trouble and (had_problem or had_silence)
        if before != self.write_ids() or recovered or is_richer:
            self.changed.emit()

    async def _poll(self) -> str:
        begun = self._clock.monotonic()
        problems = []
        try:
            response = await self._channel.call(STATUS)
        except KmsCallFailed as failed:
            return (
                "failed to perform status section of the healthz check for KMS Provider"
                f" {self.name}, error: {failed}"
            )
        if response.healthz != "ok":
            problems.append(f"got unexpected healthz status: {response.healthz[:200]}")
        problems += filter(None, [self._version_problem(response.version)])
        key_id = response.key_id
        problem = problem_of_key_id(key_id)
        if key_id == _RESERVED:
            problem = "keyID is '*', which means all keys"
        if problem:
            problems.append(f"got invalid KMSv2 KeyID: {problem}")
        else:
            problem = await self._rotate(key_id)
            if problem:
                problems.append(problem)
            else:
                self._writes_until = begun + WRITE_SECONDS_MAX
        if not problems:
            return ""
        return f"kmsv2 Provider {self.name} is not healthy, error: {', '.join(problems)}"

    def _version_problem(self, version: str) -> str:
        if version not in _VERSIONS:
            return f"expected KMSv2 API version v2, got {version[:40]}"
        self._version = self._version or version
        if version != self._version:
            return (
                "KMSv2 API version should not change after the initial status response version"
                f" {self._version}, got {version}"
            )
        return ""

    async def _rotate(self, key_id: str) -> str:
        """Ensure that the newest seed is under the plug-in's key. Returns the problem, if any."""
        self.refusal = ""
        known = self._writing.pop(key_id, None)
        if known is not None:
            self._writing[key_id] = known  # one seed per key, also if the plug-in switches back
            return ""
        secret = self._draw(SEED_BYTES)
        try:
            response = await self._channel.call(ENCRYPT, plaintext=secret, uid=self._ids.uid())
        except KmsCallFailed as failed:
            return f"failed to encrypt DEK, error: {failed}"
        envelope = KmsEnvelope(
            response.key_id, response.ciphertext, HKDF_SEED, annotations_of(response)
        )
        problem = envelope.problem()
        if problem:
            return f"failed to rotate DEK: {problem}"
        if envelope.key_id != key_id:
            return "failed to rotate DEK: the plug-in names one key and encrypts under another"
        if secret in envelope.source:
            return "failed to rotate DEK: the plug-in does not encrypt"
        seed = self._seed(secret, envelope)
        seed.trust()
        problem = await self._prove(seed, key_id)
        if problem:
            return problem
        self._keep(seed)
        self._writing[key_id] = seed
        while len(self._writing) > WRITE_SEEDS_MAX:
            del self._writing[next(iter(self._writing))]
        return ""

    async def _prove(self, seed: Seed, key_id: str) -> str:
        """Check that this key is also that of the other servers. Returns the problem, if any."""
        if self._probes is None:
            return ""
        key = probe_key(self.name, key_id)
        mine = seed.seal(key, PROBE)
        try:
            stored = await self._probes.leave(key, mine)
            if stored != mine:
                await self._open_probe(key, stored)
        except CannotOpen as error:
            self.refusal = why_refused(self.name, key_id, str(error))
            return self.refusal
        except StorageError as error:
            return f"cannot check yet whether the other servers have the same keys: {error}"
        return ""

    async def _open_probe(self, key: Key, value: bytes) -> None:
        """Decrypt a probe. Raises `CannotOpen`, or `Unavailable` if the plug-in does not
        respond."""
        if not value.startswith(self.prefix):
            raise CannotOpen("it is damaged")
        envelope, _ = self._read(value)
        tail = envelope.to_bytes()
        if tail not in self._seeds:
            # Retry a seed that was rejected before: the plug-in may have been fixed.
            self._refusals.pop(tail, None)
            await self._decrypt(tail, envelope)
            if tail not in self._seeds and tail not in self._refusals:
                raise self._unavailable()
        if self.open(key, value).value != PROBE:
            raise CannotOpen("it is damaged")

    async def _has_recovered(self) -> bool:
        """Whether it can decrypt again, which its status does not show."""
        if self._decrypt_problem and self._unanswered is not None:
            tail, envelope = self._unanswered
            await self._decrypt(tail, envelope)
            if tail not in self._seeds and tail not in self._refusals:
                return False
        self._decrypt_problem, self._unanswered = "", None
        return True

    async def _status_problem(self) -> str:
        try:
            response = await self._channel.call(STATUS)
        except KmsCallFailed as failed:
            return str(failed)
        return "" if response.healthz == "ok" else f"healthz is {response.healthz[:200]}"

    async def _retry_refused(self) -> bool:
        """Retry rejected seeds; returns whether one can be decrypted now."""
        for tail, (envelope, _) in list(self._refusals.items())[:REFUSALS_ASKED_AGAIN_MAX]:
            await self._decrypt(tail, envelope)
            if tail in self._seeds:
                self._refusals.clear()  # the others are decrypted again on the next read
                return True
        return False
