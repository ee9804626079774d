"""Channels to the members of etcd: failover, deadlines, the auth token, an orderly shutdown.

A call goes to the selected member. When that fails, the next member is selected, for this call (if
it may be repeated) and for all later ones. This module does not interpret calls.

One event loop per process, and no fork once a channel exists: gRPC supports neither.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, NamedTuple

import grpc

from restow.aio import Backoff, Runtime, in_own_thread
from restow.storage.continuity import Continuity
from restow.storage.errors import StorageClosed
from restow.storage.etcd.credentials import EtcdCredentials, load_credentials
from restow.storage.etcd.errors import (
    CERTIFICATES,
    HARMLESS,
    MOVE_ON,
    TRANSIENT,
    EtcdCallFailed,
    EtcdFailureCause,
    failure_of,
)
from restow.storage.etcd.messages import (
    AUTHENTICATE,
    SNAPSHOT,
    UNARY_METHODS,
    WATCH,
    EtcdMethod,
    SnapshotRequest,
)
from restow.storage.etcd.options import EtcdOptions
from restow.storage.plain_etcd import remote_hosts

Metadata = tuple[tuple[str, str], ...]

# A member without a leader rejects the call at once instead of blocking the caller.
_REQUIRE_LEADER: Final[Metadata] = (("hasleader", "true"),)
_ROUNDS_MAX: Final = 6
"""How often one call may try all members."""
_ROUND_BACKOFF: Final = Backoff(initial_seconds=0.05, factor=2, max_seconds=1, jitter=0.5)
_SETTLE_SECONDS: Final = 0.01
"""gRPC's own thread reports the end of cancelled calls a moment later, even to a closed loop."""

logger = logging.getLogger(__name__)


class EtcdMember:
    """One member: its channel and its methods."""

    def __init__(self, address: str, options: EtcdOptions, credentials: EtcdCredentials) -> None:
        self.address = address
        self.channel = _open_channel(address, options, credentials)
        self.unary: dict[EtcdMethod, Any] = {
            method: self.channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            for method in UNARY_METHODS
        }
        self.watch: Any = self.channel.stream_stream(
            WATCH.path,
            request_serializer=WATCH.request.SerializeToString,
            response_deserializer=WATCH.response.FromString,
        )
        self.snapshot: Any = self.channel.unary_stream(
            SNAPSHOT.path,
            request_serializer=SNAPSHOT.request.SerializeToString,
            response_deserializer=SNAPSHOT.response.FromString,
        )


class _Call(NamedTuple):
    """A call that has failed once."""

    method: EtcdMethod
    request: Any
    deadline: float
    repeatable: bool


class EtcdConnection(Continuity):
    """Connections to all members; calls go to the selected one."""

    def __init__(self, options: EtcdOptions, runtime: Runtime) -> None:
        super().__init__()
        self.options = options
        self.runtime = runtime
        if not options.tls and (remote := remote_hosts(options.endpoints)):
            logger.warning(
                "the connection to etcd at %s is not encrypted: others on the network can read and"
                " change everything that is stored",
                ", ".join(remote),
            )
        self._credentials = self._load()
        self._members = self._open_members()
        self._retired: list[EtcdMember] = []
        self._chosen = 0
        # Metadata costs a tenth of a call; with a single member there is no failover.
        self._plain = _REQUIRE_LEADER if len(self._members) > 1 else None
        self._metadata: Metadata | None = self._plain
        self._login = asyncio.Lock()
        self._active = 0
        self._idle = asyncio.Event()
        self._closed = False

    def check_open(self) -> None:
        if self._closed:
            raise StorageClosed("the store has been closed")

    async def call(
        self, method: EtcdMethod, request: Any, *, timeout_seconds: float, repeatable: bool
    ) -> Any:
        """Return the reply of any member within the timeout; raises `EtcdCallFailed`.

        A call that is not `repeatable` is sent again only if it certainly had no effect.
        """
        self.check_open()
        self._active += 1
        try:
            chosen, metadata = self._chosen, self._metadata
            # With several members, a read does not spend its whole timeout on a silent one.
            spare = repeatable and len(self._members) > 1
            started = self.runtime.clock.monotonic()
            try:
                return await self._members[chosen].unary[method](
                    request,
                    timeout=timeout_seconds / 2 if spare else timeout_seconds,
                    metadata=metadata,
                )
            except (grpc.RpcError, asyncio.CancelledError) as error:
                failed = _failure_or_raise(error)
            call = _Call(method, request, started + timeout_seconds, repeatable)
            return await self._repeat(call, failed, chosen, metadata)
        finally:
            self._active -= 1
            if self._closed and not self._active:
                self._idle.set()

    async def _repeat(
        self, call: _Call, failed: EtcdCallFailed, chosen: int, metadata: Metadata | None
    ) -> Any:
        """Retry after a first failure: with the other members, a new token, or a backoff."""
        allowed = CERTIFICATES | (TRANSIENT if call.repeatable else HARMLESS)
        for failures in range(1, _ROUNDS_MAX * len(self._members) + 1):
            if failed.cause in MOVE_ON:
                self.move_on(chosen)
            if failed.cause not in allowed or self._closed:
                break
            if not await self._prepare(failures, failed, metadata, call.deadline):
                break
            timeout_seconds = call.deadline - self.runtime.clock.monotonic()
            if timeout_seconds <= 0:
                break
            chosen, metadata = self._chosen, self._metadata
            try:
                return await self._members[chosen].unary[call.method](
                    call.request, timeout=timeout_seconds, metadata=metadata
                )
            except (grpc.RpcError, asyncio.CancelledError) as error:
                failed = _failure_or_raise(error)
        raise failed

    async def _prepare(
        self, failures: int, failed: EtcdCallFailed, metadata: Metadata | None, deadline: float
    ) -> bool:
        """Renew the token, or back off if all members failed; False if a retry is useless."""
        if failed.cause is EtcdFailureCause.TOKEN_STALE:
            if self.options.username is None:
                return False
            try:
                await self.log_in(stale=metadata)
            except EtcdCallFailed as refused:
                # The login failed, but the call itself still had no effect.
                cause = (
                    EtcdFailureCause.NOT_READY
                    if refused.cause is EtcdFailureCause.LOST
                    else refused.cause
                )
                raise EtcdCallFailed(cause, refused.details) from refused
            return True
        rounds, within_round = divmod(failures, len(self._members))
        if within_round == 0:
            if failed.cause in CERTIFICATES:
                return False
            clock, randomness = self.runtime.clock, self.runtime.randomness
            delay_seconds = _ROUND_BACKOFF.delay_seconds(rounds - 1, randomness)
            if clock.monotonic() + delay_seconds >= deadline:
                return False
            await clock.sleep(delay_seconds)
        return True

    def move_on(self, failed: int) -> None:
        """Select the next member, unless another call has done so already."""
        if failed == self._chosen:
            self._chosen = (failed + 1) % len(self._members)

    def open_watch(self) -> tuple[int, Any]:
        """Open a watch call at the selected member; also return that member's number."""
        self.check_open()
        return self._chosen, self._members[self._chosen].watch(
            metadata=self._metadata if self._metadata is not None else _REQUIRE_LEADER
        )

    def open_snapshot(self, *, timeout_seconds: float) -> Any:
        """A call that streams the database of the selected member."""
        self.check_open()
        return self._members[self._chosen].snapshot(
            SnapshotRequest(), timeout=timeout_seconds, metadata=self._metadata
        )

    async def log_in(self, *, stale: Metadata | None = None) -> None:
        """Get a token, unless the stale one was replaced already; raises `EtcdCallFailed`."""
        if self.options.username is None:
            return
        async with self._login:
            if stale is not None and self._metadata is not stale:
                return
            for tries_left in reversed(range(len(self._members))):
                chosen = self._chosen
                try:
                    self._metadata = await self._authenticate(self._members[chosen])
                except EtcdCallFailed as failed:
                    if failed.cause not in TRANSIENT | CERTIFICATES or not tries_left:
                        raise
                    self.move_on(chosen)
                else:
                    return

    async def _authenticate(self, member: EtcdMember) -> Metadata | None:
        options = self.options
        try:
            response = await member.unary[AUTHENTICATE](
                AUTHENTICATE.request(name=options.username, password=options.password),
                timeout=options.request_timeout_seconds,
                metadata=_REQUIRE_LEADER,
            )
        except (grpc.RpcError, asyncio.CancelledError) as error:
            failed = _failure_or_raise(error)
            if "authentication is not enabled" not in failed.details:
                raise failed from error
            return self._plain  # no auth: go on without a token, as etcd's own client does
        return (*_REQUIRE_LEADER, ("token", response.token))

    async def renew(self) -> bool:
        """Load the certificate files again and use them for new calls; whether they had changed.

        Calls in flight continue on their old connection; streams end with it, and are reopened.
        On `OpenRefused` nothing has changed.
        """
        found = await in_own_thread("certificates of etcd", self._load)
        if found == self._credentials or self._closed:
            return False
        self._credentials = found
        self._retired += self._members
        self._members = self._open_members()
        await self.runtime.clock.sleep(self.options.request_timeout_seconds)
        retired, self._retired = self._retired, []
        for member in retired:
            await member.channel.close()
        return True

    def _load(self) -> EtcdCredentials:
        return load_credentials(self.options, self.runtime.clock.wall())

    def _open_members(self) -> list[EtcdMember]:
        return [
            EtcdMember(address, self.options, self._credentials)
            for address in self.options.endpoints
        ]

    def refuse_calls(self) -> None:
        """Reject new calls from now on."""
        self._closed = True

    async def close(self) -> None:
        """Reject new calls, wait for calls in flight, then close the channels."""
        self.refuse_calls()
        if not self._active:
            self._idle.set()
        try:
            async with self.runtime.clock.timeout(self.options.request_timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            pass  # callers that still wait get a failure: the reply was lost
        for member in (*self._members, *self._retired):
            await member.channel.close()
        await self.runtime.clock.sleep(_SETTLE_SECONDS)


def is_cancelled() -> bool:
    """Whether the running task itself was cancelled, and not only a call that it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _failure_or_raise(error: BaseException) -> EtcdCallFailed:
    """The cause of a failed call; raises if the caller was cancelled."""
    if isinstance(error, grpc.RpcError):
        failed = failure_of(error)
    elif is_cancelled():
        raise error
    else:
        failed = EtcdCallFailed(EtcdFailureCause.LOST, "the channel was closed")
    failed.__cause__ = error
    return failed


def _open_channel(
    address: str, options: EtcdOptions, credentials: EtcdCredentials
) -> grpc.aio.Channel:
    settings: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_http_proxy", 0),  # a proxy of the environment must not see the store
        ("grpc.enable_retries", 0),  # retries are decided in this module
        ("grpc.keepalive_time_ms", int(options.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", int(options.keepalive_timeout_seconds * 1000)),
        # Without this an unanswered ping ends the connection only after a minute.
        ("grpc.http2.ping_timeout_ms", int(options.keepalive_timeout_seconds * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", int(options.request_timeout_seconds * 1000)),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # Two stores in one process must not share a connection, nor its flow control.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if not options.tls:
        return grpc.aio.insecure_channel(address, options=settings)
    shown = grpc.ssl_channel_credentials(
        root_certificates=credentials.authorities,
        private_key=credentials.key,
        certificate_chain=credentials.chain,
    )
    return grpc.aio.secure_channel(address, shown, options=settings)
