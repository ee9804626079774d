"""A finished document, small in memory, and the hash by which clients cache it.

Not here: what is in a document.
"""

import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

import orjson

from restow import __version__
from restow.kinds.types import DATA
from restow.serving.openapi.declared import encoded
from restow.serving.openapi.served import ApiInfo, ServedKind, in_order

# Counts up when the same input makes other bytes, so that clients ask again.
FORMAT_REVISION: Final = 2

# Good enough, and a megabyte takes milliseconds.
_COMPRESSION_LEVEL: Final = 4


@dataclass(frozen=True, slots=True)
class Document:
    """The bytes of a document, kept compressed, since most clients ask for it that way."""

    compressed: bytes
    """As gzip, ready to be sent with that content encoding."""
    etag: str
    """A hash in upper hex; the caller adds the quotes."""

    @property
    def body(self) -> bytes:
        """The plain bytes."""
        return gzip.decompress(self.compressed)


def finish(body: bytes, etag: str = "") -> Document:
    """Compress a body; its hash is its own unless one was made from its inputs."""
    packed = gzip.compress(body, compresslevel=_COMPRESSION_LEVEL, mtime=0)
    return Document(packed, etag or hashlib.sha512(body).hexdigest().upper())


def fingerprint(kinds: Iterable[ServedKind], info: ApiInfo) -> str:
    """A hash of all that a document is made from.

    The index names a hash for every document. Made from the inputs, it costs no document, and is
    the same on all servers of one release.
    """
    digest = hashlib.sha512(f"{FORMAT_REVISION} {__version__} {_tables_hash()}\n".encode())
    digest.update(orjson.dumps(info))
    for kind in in_order(list(kinds)):
        names = (kind.group, kind.version, kind.kind, kind.plural, kind.singular, kind.type_name)
        digest.update(orjson.dumps((names, kind.namespaced, kind.verbs, kind.subresources)))
        digest.update(encoded(kind.schema) or b"null")
    return digest.hexdigest().upper()


@cache
def _tables_hash() -> str:
    return hashlib.sha512(DATA.read_bytes()).hexdigest()
