"""A plug-in of KMS v2: it guards one key, and this server's seeds are encrypted under that.

The plug-in is asked for its status now and then; when it names another key, a new seed is made and
encrypted under it. What was written under other seeds is opened after the plug-in has been asked
for them once. Writes go on for some minutes after the plug-in has fallen silent, as in
kube-apiserver; reads of known seeds go on for ever.

Under a key that is new to it, a server writes only after it has opened what another server has
sealed there (`kms_probes`): two plug-ins of one name need not have the same keys behind them.

Not here: the form of values (`kms_seeds`), the socket (`kms_channel`), and which resources are
encrypted (`keyring`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from restow.aio import Backoff, Clock, Runtime, TaskHandle
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
"""After a failure it is asked sooner."""
HURRY_SECONDS: Final = 1.0
"""A read that failed makes it be asked this soon; until it answers, other reads fail at once."""
WRITE_SECONDS_MAX: Final = 180.0
"""How long a seed is written with after the plug-in last said that its key is in use."""
SEEDS_MAX: Final = 1024
WRITE_SEEDS_MAX: Final = 4
REFUSALS_MAX: Final = 256
REFUSALS_ASKED_AGAIN_MAX: Final = 16
DECRYPTS_MAX: Final = 8
"""So many seeds are asked for at a time."""
_VERSIONS: Final = ("v2", "v2beta1")
_RESERVED: Final = "*"
"""Means all keys of a plug-in where servers say what they can read."""

logger = logging.getLogger(__name__)


class Plugin:
    """One plug-in, and the seeds that it has encrypted or decrypted for us."""

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
        self.listeners: list[Callable[[], None]] = []
        """Called when another key is to be written with, or more can be read than before."""
        self.problem = "it has not been asked yet"
        """What is wrong with the plug-in; empty: nothing."""
        self.refusal = ""
        """Why it may not be used at all: its keys are not those of the other servers."""
        self._probes = probes
        self._clock: Clock = runtime.clock
        self._draw = runtime.randomness.token_bytes
        self._ids = runtime.ids
        self._tasks = runtime.tasks(f"kms {provider.name}")
        self._poll_seconds = poll_seconds
        self._backoff = Backoff(
            initial_seconds=min(HURRY_SECONDS, retry_seconds_max),
            factor=2,
            max_seconds=retry_seconds_max,
            jitter=0,
        )
        self._channel = Channel(
            provider.socket, timeout_seconds=provider.timeout_seconds, clock=runtime.clock
        )
        self._version = ""
        self._writing: dict[str, Seed] = {}  # by the id of the key, the newest last
        self._writes_until = 0.0
        self._seeds: OrderedDict[bytes, Seed] = OrderedDict()  # by tail, the last asked for last
        self._refusals: OrderedDict[bytes, tuple[KmsEnvelope, str]] = OrderedDict()
        self._asking: dict[bytes, TaskHandle] = {}
        self._turns = asyncio.Semaphore(DECRYPTS_MAX)
        self._silence = ""
        """Why the last seed that was asked for did not come; empty: it came."""
        self._unanswered: tuple[bytes, KmsEnvelope] | None = None
        """That seed: it is asked for again to see whether the silence is over."""
        self._hurry = asyncio.Event()
        self._polling = asyncio.Lock()

    async def start(self) -> None:
        """Ask for the first time, then again and again. A plug-in may come later than we do."""
        await self.poll()
        self._tasks.spawn_loop("poll", self._follow())

    async def close(self) -> None:
        await self._tasks.close()
        await self._channel.close()

    @property
    def trouble(self) -> str:
        """What is wrong with it, as of its last answer to anything; empty: nothing."""
        if self.problem or not self._silence:
            return self.problem
        return f"kmsv2 Provider {self.name} does not decrypt, error: {self._silence}"

    # Writing.

    def write_ids(self) -> tuple[str, ...]:
        """The keys that can be written with, the plug-in's own choice first."""
        return tuple(seed.key_id for seed in reversed(self._writing.values()))

    def write_id(self) -> str:
        """The key that the plug-in has chosen. Raises `Unavailable` before it has."""
        for seed in reversed(self._writing.values()):
            return seed.key_id
        text = f"the KMS plug-in {self.name} has named no key yet"
        raise Unavailable(f"{text}: {self.problem}", client_message=text)

    def seal(self, key_id: str, key: str, value: bytes) -> bytes:
        """Raises `Unavailable` without a seed under that key, or when it is too old."""
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
        """Raises `CannotOpen`; `NotPrepared` for a seed that has to be asked for first."""
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
                self._seeds.pop(seed.tail, None)  # the plug-in may say another thing next time
            raise CannotOpen(
                f"it is encrypted with the KMS plug-in {self.name} under its key"
                f" {seed.key_id.split(':', 2)[2]}, and what the plug-in gives does not open it: it"
                " was changed, or moved from another key of the store, or the plug-in has another"
                " key of that id",
                tried=(seed.key_id,),
            ) from None
        return Opened(opened, seed.key_id)

    def _find(self, value: bytes) -> tuple[Seed, bytes]:
        """The slow way, for what is not known yet, or was written with its fields otherwise."""
        envelope, data = self._read(value)
        tail = envelope.to_bytes()
        seed = self._seeds.get(tail)
        if seed is not None:
            return seed, data
        if tail in self._refusals:
            raise CannotOpen(
                f"it is encrypted with the KMS plug-in {self.name} under its key"
                f" {envelope.key_id}, and the plug-in does not decrypt that:"
                f" {self._refusals[tail][1]}; give the plug-in that key back",
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
        """Ask for the seeds of values. Raises `Unavailable` when the plug-in does not answer."""
        wanted: dict[bytes, KmsEnvelope] = {}
        for value in values:
            found = cut(value, len(self.prefix))
            if found is not None and found.tail in self._seeds:
                self._seeds.move_to_end(found.tail)
                continue
            try:
                envelope, _ = self._read(value)
            except CannotOpen:
                continue  # whoever opens it is told
            wanted[envelope.to_bytes()] = envelope
        waiting = []
        for tail, envelope in wanted.items():
            if tail in self._seeds or tail in self._refusals:
                continue
            if self._silence:
                raise self._unavailable()
            if tail not in self._asking:
                self._asking[tail] = self._tasks.spawn("decrypt", self._ask(tail, envelope))
            waiting.append((tail, self._asking[tail]))
        for tail, task in waiting:
            await task.wait()
            if tail not in self._seeds and tail not in self._refusals:
                raise self._unavailable()

    def _unavailable(self) -> Unavailable:
        text = f"the KMS plug-in {self.name} does not decrypt"
        return PluginSilent(f"{text}: {self._silence}", client_message=text)

    async def _ask(self, tail: bytes, envelope: KmsEnvelope) -> None:
        try:
            async with self._turns:
                await self._decrypt(tail, envelope)
        finally:
            del self._asking[tail]

    async def _decrypt(self, tail: bytes, envelope: KmsEnvelope) -> None:
        """Afterwards the seed is known, or that it is refused, or the plug-in is silent."""
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
                # A plug-in that is well and does not decrypt this one will not.
                self._refuse(tail, envelope, str(failed))
            else:
                self._unanswered = (tail, envelope)
                self._fall_silent(str(failed))
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
        logger.warning("the KMS plug-in %s does not decrypt a seed: %s", self.name, why)
        self._refusals[tail] = (envelope, why)
        while len(self._refusals) > REFUSALS_MAX:
            self._refusals.popitem(last=False)

    def _fall_silent(self, why: str) -> None:
        if not self._silence:
            logger.warning("the KMS plug-in %s does not answer: %s", self.name, why)
            self._hurry.set()
        self._silence = why

    # Asking how it is.

    async def _follow(self) -> None:
        failures = 0
        while True:
            seconds = self._poll_seconds
            if self.trouble:
                seconds = self._backoff.ceiling_seconds(failures)
            try:
                async with self._clock.timeout(seconds):
                    await self._hurry.wait()
                await self._clock.sleep(min(HURRY_SECONDS, seconds))
            except TimeoutError:
                pass
            self._hurry.clear()
            await self.poll()
            failures = failures + 1 if self.trouble else 0

    async def poll(self) -> None:
        """Ask for the status, and follow the plug-in to another key. Never raises."""
        async with self._polling:
            had_problem, had_silence = bool(self.problem), bool(self._silence)
            before = self.write_ids()
            problem = await self._poll()
            if problem and problem != self.problem:
                logger.warning("%s", problem)
            self.problem = problem
            is_richer = False
            if not problem and await self._breaks_silence():
                is_richer = await self._ask_again()
        recovered = not self.trouble and (had_problem or had_silence)
        if before != self.write_ids() or recovered or is_richer:
            for listener in tuple(self.listeners):
                listener()

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
        """See to it that there is a seed under the plug-in's key, the newest. What went wrong."""
        self.refusal = ""
        known = self._writing.pop(key_id, None)
        if known is not None:
            self._writing[key_id] = known  # one seed per key, also when the plug-in goes back
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
        seed.is_proven = True
        problem = await self._prove(seed, key_id)
        if problem:
            return problem
        self._keep(seed)
        self._writing[key_id] = seed
        while len(self._writing) > WRITE_SEEDS_MAX:
            del self._writing[next(iter(self._writing))]
        return ""

    async def _prove(self, seed: Seed, key_id: str) -> str:
        """Whether this key of the plug-in is that of the other servers. What speaks against it."""
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
            return f"it is not known yet whether the other servers have the same keys: {error}"
        return ""

    async def _open_probe(self, key: Key, value: bytes) -> None:
        """Raises `CannotOpen`, or `Unavailable` when it does not answer."""
        if not value.startswith(self.prefix):
            raise CannotOpen("it is damaged")
        envelope, _ = self._read(value)
        tail = envelope.to_bytes()
        if tail not in self._seeds:
            # What it once refused, it is asked for again: somebody may have mended it.
            self._refusals.pop(tail, None)
            await self._decrypt(tail, envelope)
            if tail not in self._seeds and tail not in self._refusals:
                raise self._unavailable()
        if self.open(key, value).value != PROBE:
            raise CannotOpen("it is damaged")

    async def _breaks_silence(self) -> bool:
        """Whether it decrypts again. Its status tells nothing of that."""
        if self._silence and self._unanswered is not None:
            tail, envelope = self._unanswered
            await self._decrypt(tail, envelope)
            if tail not in self._seeds and tail not in self._refusals:
                return False
        self._silence, self._unanswered = "", None
        return True

    async def _status_problem(self) -> str:
        try:
            response = await self._channel.call(STATUS)
        except KmsCallFailed as failed:
            return str(failed)
        return "" if response.healthz == "ok" else f"healthz is {response.healthz[:200]}"

    async def _ask_again(self) -> bool:
        """Whether something that was refused is decrypted now."""
        for tail, (envelope, _) in list(self._refusals.items())[:REFUSALS_ASKED_AGAIN_MAX]:
            await self._decrypt(tail, envelope)
            if tail in self._seeds:
                self._refusals.clear()  # the others are asked for when they are read
                return True
        return False
