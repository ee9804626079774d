"""Errors that prevent a server from starting. Their text is for the operator."""

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
