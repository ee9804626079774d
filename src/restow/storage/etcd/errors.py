"""Translates errors of gRPC and etcd into causes and into errors of storage.

`classify` is total: an unrecognized error becomes LOST, the conservative choice, because then the
call may have had its effect. No retries and no I/O here.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import grpc

from restow.storage.errors import (
    Compacted,
    FutureRevision,
    InvalidTransaction,
    OpenRefused,
    StorageError,
    StoreDamaged,
    StoreFull,
    TransactionTooLarge,
    Unavailable,
)
from restow.storage.interface import Revision


class EtcdFailureCause(Enum):
    """Why a call failed. All but LOST and FULL mean: it certainly had no effect."""

    NOT_SENT = auto()
    """No connection was made."""
    NOT_READY = auto()
    """The member replied that it cannot serve now."""
    TOKEN_STALE = auto()
    """The auth token must be renewed."""
    LOST = auto()
    """No reply, or one that does not say whether the call had its effect."""
    FULL = auto()
    """etcd's quota is exceeded. The call that exceeds it is applied, and still gets this error."""
    COMPACTED = auto()
    FUTURE = auto()
    TOO_LARGE = auto()
    INVALID = auto()
    DENIED = auto()
    """Wrong password, or no permission for these keys."""
    CERTIFICATE = auto()
    """The member's certificate is not trusted."""
    OWN_CERTIFICATE = auto()
    """The member does not trust the client certificate, or requires one and got none."""
    DAMAGED = auto()


TRANSIENT: Final = frozenset(
    {
        EtcdFailureCause.NOT_SENT,
        EtcdFailureCause.NOT_READY,
        EtcdFailureCause.TOKEN_STALE,
        EtcdFailureCause.LOST,
    }
)
"""May be retried if a second effect does no harm."""

HARMLESS: Final = frozenset(
    {EtcdFailureCause.NOT_SENT, EtcdFailureCause.NOT_READY, EtcdFailureCause.TOKEN_STALE}
)
"""May always be retried."""

CERTIFICATES: Final = frozenset({EtcdFailureCause.CERTIFICATE, EtcdFailureCause.OWN_CERTIFICATE})
"""Nothing was sent. Another member may accept the call, but waiting does not help."""

MOVE_ON: Final = (TRANSIENT | CERTIFICATES) - {EtcdFailureCause.TOKEN_STALE}
"""May be retried with another member."""

UNSETTLED: Final = frozenset({EtcdFailureCause.LOST, EtcdFailureCause.FULL})
"""The call may have had its effect."""

# Text of a server that rejects the certificate of its client.
_ALERTS: Final = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNKNOWN_CA",
    "UNSUPPORTED_CERTIFICATE",
)

# Part of etcd's or gRPC's text -> cause; the first match counts.
_TEXTS: Final = (
    ("CERTIFICATE_VERIFY_FAILED", EtcdFailureCause.CERTIFICATE),
    ("Hostname Verification Check failed", EtcdFailureCause.CERTIFICATE),
    *((f"ALERT_{alert}", EtcdFailureCause.OWN_CERTIFICATE) for alert in _ALERTS),
    ("failed to connect to all addresses", EtcdFailureCause.NOT_SENT),
    ("errors resolving", EtcdFailureCause.NOT_SENT),
    ("DNS resolution failed", EtcdFailureCause.NOT_SENT),
    ("required revision has been compacted", EtcdFailureCause.COMPACTED),
    ("required revision is a future revision", EtcdFailureCause.FUTURE),
    ("database space exceeded", EtcdFailureCause.FULL),
    ("etcdserver: too many requests", EtcdFailureCause.NOT_READY),
    ("etcdserver: no leader", EtcdFailureCause.NOT_READY),
    ("etcdserver: not capable", EtcdFailureCause.NOT_READY),
    ("rpc not supported for learner", EtcdFailureCause.NOT_READY),
    ("invalid auth token", EtcdFailureCause.TOKEN_STALE),
    ("revision of auth store is old", EtcdFailureCause.TOKEN_STALE),
    ("revision in header is old", EtcdFailureCause.TOKEN_STALE),
    ("invalid user ID or password", EtcdFailureCause.DENIED),
    ("user name is empty", EtcdFailureCause.DENIED),
    ("request is too large", EtcdFailureCause.TOO_LARGE),
    ("too many operations", EtcdFailureCause.TOO_LARGE),
    ("corrupt cluster", EtcdFailureCause.DAMAGED),
)

# The meaning of the status code alone, when etcd sent it.
_CODES: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: EtcdFailureCause.INVALID,
    grpc.StatusCode.PERMISSION_DENIED: EtcdFailureCause.DENIED,
    grpc.StatusCode.UNAUTHENTICATED: EtcdFailureCause.TOKEN_STALE,
    grpc.StatusCode.FAILED_PRECONDITION: EtcdFailureCause.INVALID,
    grpc.StatusCode.UNIMPLEMENTED: EtcdFailureCause.INVALID,
    grpc.StatusCode.DATA_LOSS: EtcdFailureCause.DAMAGED,
}


UNREACHABLE: Final = "the store cannot be reached"
"""Message to clients, whatever the cause."""


class EtcdCallFailed(Exception):
    """A call to etcd failed. Internal to this package."""

    def __init__(self, cause: EtcdFailureCause, details: str) -> None:
        super().__init__(f"{cause.name}: {details}")
        self.cause = cause
        self.details = details


def classify(code: grpc.StatusCode, details: str | None) -> EtcdFailureCause:
    """The cause of a status."""
    text = details or ""
    for part, cause in _TEXTS:
        if part in text:
            return cause
    return _CODES.get(code, EtcdFailureCause.LOST)


def failure_of(error: grpc.RpcError) -> EtcdCallFailed:
    """Convert a gRPC error."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return EtcdCallFailed(EtcdFailureCause.LOST, repr(error))
    code, details = error.code(), error.details() or ""
    return EtcdCallFailed(classify(code, details), f"{details} ({code.name})")


def translate(failed: EtcdCallFailed, *, asked: Revision | None = None) -> StorageError:
    """The storage error for a failed call.

    For COMPACTED and FUTURE only `asked` is known here; readers add the other revision.
    """
    text, at = f"etcd: {failed.details}", asked or Revision(0)
    match failed.cause:
        case EtcdFailureCause.COMPACTED:
            return Compacted(Revision(at + 1))
        case EtcdFailureCause.FUTURE:
            return FutureRevision(at, Revision(at - 1))
        case EtcdFailureCause.FULL:
            todo = "; compact and defragment etcd or raise its quota, then disarm its alarm"
            return StoreFull(text + todo, client_message="etcd's quota is used up" + todo)
        case EtcdFailureCause.TOO_LARGE:
            return TransactionTooLarge(text, client_message="etcd's request limit is exceeded")
        case EtcdFailureCause.INVALID:
            return InvalidTransaction(text, client_message="the store rejects such requests")
        case EtcdFailureCause.DAMAGED:
            return StoreDamaged(text, client_message="the store reports that it is damaged")
        case EtcdFailureCause.DENIED:
            return OpenRefused(
                f"{text}; check etcd's user, password and role",
                client_message="the store denies access to this server",
            )
        case (
            EtcdFailureCause.CERTIFICATE
            | EtcdFailureCause.OWN_CERTIFICATE
            | EtcdFailureCause.NOT_SENT
            | EtcdFailureCause.NOT_READY
            | EtcdFailureCause.TOKEN_STALE
            | EtcdFailureCause.LOST
        ):
            return Unavailable(text, client_message=UNREACHABLE)


def translate_opening(failed: EtcdCallFailed) -> StorageError:
    """The storage error for a failed first call: an invalid certificate is a configuration error.

    Later, certificates are renewed at run time, and until then the store is only unavailable.
    """
    match failed.cause:
        case EtcdFailureCause.CERTIFICATE:
            return OpenRefused(
                f"etcd: {failed.details}; the server's certificate is not signed by the given"
                " authority, has expired, or is for another name"
            )
        case EtcdFailureCause.OWN_CERTIFICATE:
            return OpenRefused(
                f"etcd: {failed.details}; it requires a client certificate of an authority that it"
                " trusts: use --etcd-certfile and --etcd-keyfile"
            )
        case _:
            return translate(failed)
