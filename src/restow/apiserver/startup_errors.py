"""Errors that mean: this server may not start like this. Their text is for the person who tried."""

from __future__ import annotations

from restow.apiserver.pki import PkiError
from restow.client import ConfigInvalid
from restow.httpserver import TlsError
from restow.kinds.releases import ReleaseError
from restow.storage.errors import StorageError
from restow.storageversion.errors import CoordinationError

REFUSALS = (
    ConfigInvalid,
    CoordinationError,
    StorageError,
    PkiError,
    TlsError,
    ReleaseError,
    OSError,
    ValueError,
)
