"""Storage errors as API errors: without addresses, file names and messages of other programs."""

from __future__ import annotations

import apsw
import pytest

from restow.apimachinery.status_error import StatusError
from restow.registry.errors import translate
from restow.storage.errors import StorageError, Unavailable
from restow.storage.etcd import errors as etcd
from restow.storage.etcd.errors import EtcdCallFailed, EtcdFailureCause
from restow.storage.sqlite import errors as sqlite

SAID = "ipv4:10.0.0.7:2379: Ssl handshake failed: SSL_ERROR_SSL: /data/store.db"


def hidden(error: StorageError) -> StatusError:
    answer = translate(error)
    for part in ("10.0.0.7", "SSL_ERROR", "/data"):
        assert part not in answer.message
    return answer


@pytest.mark.parametrize("cause", EtcdFailureCause)
def test_etcd(cause: EtcdFailureCause) -> None:
    """Messages of etcd and gRPC are only logged."""
    error = etcd.translate(EtcdCallFailed(cause, SAID))
    answer = hidden(error)
    if type(error) is Unavailable:
        assert (answer.code, answer.message) == (503, "the store cannot be reached")
        assert SAID in str(error)


@pytest.mark.parametrize(
    "error",
    [
        apsw.CantOpenError(SAID),
        apsw.FullError(SAID),
        apsw.IOError(SAID),
        OSError(28, "No space left on device", "/data/store.db"),
        OSError(13, "Permission denied", "/data/store.db"),
    ],
    ids=repr,
)
def test_sqlite(error: Exception) -> None:
    """File names are not returned."""
    assert hidden(sqlite.translate(error)).code in (500, 503)


def test_own_words_are_told() -> None:
    """Messages of this program are returned."""
    assert translate(Unavailable("too many wait")).message == "too many wait"
