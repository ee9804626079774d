"""Translation of gRPC errors into storage errors."""

import grpc
import pytest

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
from restow.storage.etcd.errors import (
    HARMLESS,
    UNSETTLED,
    EtcdCallFailed,
    EtcdFailureCause,
    classify,
    failure_of,
    translate,
)
from restow.storage.interface import Revision

CODES = list(grpc.StatusCode)

# etcd's text -> its code, and the expected storage error.
MESSAGES: dict[str, tuple[grpc.StatusCode, type[StorageError]]] = {
    "etcdserver: mvcc: required revision has been compacted": (
        grpc.StatusCode.OUT_OF_RANGE,
        Compacted,
    ),
    "etcdserver: mvcc: required revision is a future revision": (
        grpc.StatusCode.OUT_OF_RANGE,
        FutureRevision,
    ),
    "etcdserver: mvcc: database space exceeded": (grpc.StatusCode.RESOURCE_EXHAUSTED, StoreFull),
    "etcdserver: request is too large": (grpc.StatusCode.INVALID_ARGUMENT, TransactionTooLarge),
    "etcdserver: too many operations in txn request": (
        grpc.StatusCode.INVALID_ARGUMENT,
        TransactionTooLarge,
    ),
    "etcdserver: duplicate key given in txn request": (
        grpc.StatusCode.INVALID_ARGUMENT,
        InvalidTransaction,
    ),
    "etcdserver: key is not provided": (grpc.StatusCode.INVALID_ARGUMENT, InvalidTransaction),
    "etcdserver: too many requests": (grpc.StatusCode.RESOURCE_EXHAUSTED, Unavailable),
    "etcdserver: authentication failed, invalid user ID or password": (
        grpc.StatusCode.INVALID_ARGUMENT,
        OpenRefused,
    ),
    "etcdserver: user name is empty": (grpc.StatusCode.INVALID_ARGUMENT, OpenRefused),
    "etcdserver: permission denied": (grpc.StatusCode.PERMISSION_DENIED, OpenRefused),
    "etcdserver: invalid auth token": (grpc.StatusCode.UNAUTHENTICATED, Unavailable),
    "etcdserver: no leader": (grpc.StatusCode.UNAVAILABLE, Unavailable),
    "etcdserver: corrupt cluster": (grpc.StatusCode.DATA_LOSS, StoreDamaged),
    "failed to connect to all addresses; last error: refused": (
        grpc.StatusCode.UNAVAILABLE,
        Unavailable,
    ),
}

# After these a commit may have been applied, or may still be.
LOST = [
    (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
    (grpc.StatusCode.CANCELLED, "Received RST_STREAM"),
    (grpc.StatusCode.UNKNOWN, "context canceled"),
    (grpc.StatusCode.INTERNAL, "stream terminated by RST_STREAM"),
    (grpc.StatusCode.UNAVAILABLE, "Socket closed"),
    (grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer"),
    (grpc.StatusCode.UNAVAILABLE, "etcdserver: request timed out"),
    (
        grpc.StatusCode.UNAVAILABLE,
        "etcdserver: request timed out, possibly due to previous leader failure",
    ),
    (
        grpc.StatusCode.UNAVAILABLE,
        "etcdserver: request timed out, possibly due to connection lost",
    ),
    (grpc.StatusCode.UNAVAILABLE, "etcdserver: leader changed"),
    (grpc.StatusCode.UNAVAILABLE, "etcdserver: server stopped"),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "some message is larger than max"),
    (grpc.StatusCode.OUT_OF_RANGE, None),
]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("details", [None, "", "never heard of", *MESSAGES])
def test_every_status_is_translated(code: grpc.StatusCode, details: str | None) -> None:
    """Each code with each text becomes some storage error, never another exception."""
    failed = EtcdCallFailed(classify(code, details), details or "")
    assert isinstance(translate(failed), StorageError)


@pytest.mark.parametrize(("details", "expected"), MESSAGES.items())
def test_messages_of_etcd_keep_their_meaning(
    details: str, expected: tuple[grpc.StatusCode, type[StorageError]]
) -> None:
    """Each message of etcd becomes exactly the error that the contract defines for it."""
    code, error = expected
    assert type(translate(EtcdCallFailed(classify(code, details), details))) is error


@pytest.mark.parametrize(("code", "details"), LOST)
def test_failures_that_may_have_had_an_effect_are_lost(
    code: grpc.StatusCode, details: str | None
) -> None:
    """An error that leaves the outcome of a commit open is always resolved by reading."""
    assert classify(code, details) is EtcdFailureCause.LOST


def test_retried_failures_had_no_effect() -> None:
    """No failure that is retried without reading may have had an effect."""
    assert not HARMLESS & UNSETTLED
    assert EtcdFailureCause.FULL in UNSETTLED


def test_errors_without_a_status_count_as_lost() -> None:
    """A gRPC error of unknown kind counts as lost."""
    assert failure_of(grpc.RpcError("?")).cause is EtcdFailureCause.LOST


def test_compacted_names_a_revision_beyond_the_one_asked_for() -> None:
    """Even before the true revision is known, the error never implies that `asked` is readable."""
    error = translate(EtcdCallFailed(EtcdFailureCause.COMPACTED, ""), asked=Revision(7))
    assert isinstance(error, Compacted)
    assert error.compacted == 8
