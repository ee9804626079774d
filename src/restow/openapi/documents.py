"""A finished, compressed document, and the hash with which clients cache it.

Not here: the content of documents.
"""

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

import orjson

from restow import __version__
from restow.kinds.types import DATA
from restow.openapi.declared import encoded
from restow.openapi.served import ApiInfo, ServedKind, in_order

# Increment it when the same input produces other bytes, so that clients fetch documents again.
FORMAT_REVISION: Final = 5

# Compresses well enough, at a megabyte in milliseconds.
_COMPRESSION_LEVEL: Final = 4
_GZIP: Final = 31  # zlib's wbits value for the gzip format
PIECE_BYTES_MAX: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Document:
    """The bytes of a document, stored compressed, since most clients request it that way."""

    compressed: bytes
    """Gzip bytes, ready to be sent with that content encoding."""
    etag: str
    """A hash in upper-case hex; the caller adds the quotes."""

    @property
    def body(self) -> bytes:
        """The uncompressed bytes."""
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """Return the uncompressed bytes in pieces, so that a large document does not block the
        loop.
        """
        unpacking = zlib.decompressobj(wbits=_GZIP)
        found = [unpacking.decompress(self.compressed, PIECE_BYTES_MAX)]
        while unpacking.unconsumed_tail:
            found.append(unpacking.decompress(unpacking.unconsumed_tail, PIECE_BYTES_MAX))
        found.append(unpacking.flush())
        return [each for each in found if each]


def finish(pieces: Iterable[bytes], etag: str = "") -> Document:
    """Compress a body; its ETag is the hash of the content unless one is given."""
    packing = zlib.compressobj(level=_COMPRESSION_LEVEL, wbits=_GZIP)
    digest = hashlib.sha512()
    packed = []
    for piece in pieces:
        packed.append(packing.compress(piece))
        if not etag:
            digest.update(piece)
    packed.append(packing.flush())
    return Document(b"".join(packed), etag or digest.hexdigest().upper())


def fingerprint(kinds: Iterable[ServedKind], info: ApiInfo) -> str:
    """Return a hash of all inputs of a document.

    The index contains a hash per document. Computed from the inputs, it does not require the
    document, and is equal on all servers of one release.
    """
    return fingerprint_of([kind_digest(kind) for kind in in_order(list(kinds))], info)


def fingerprint_of(digests: Iterable[bytes], info: ApiInfo) -> str:
    """Return the hash of `fingerprint`, from the kinds' digests in order, which can be cached."""
    whole = hashlib.sha512(f"{FORMAT_REVISION} {__version__} {_tables_hash()}\n".encode())
    whole.update(orjson.dumps(info))
    for each in digests:
        whole.update(each)
    return whole.hexdigest().upper()


def kind_digest(kind: ServedKind) -> bytes:
    """Return a hash of everything that documents contain about one kind."""
    names = (kind.group, kind.version, kind.kind, kind.plural, kind.singular, kind.type_name)
    more = (kind.list_kind, kind.selectable, kind.returns_deleted)
    digest = hashlib.sha512()
    digest.update(orjson.dumps((names, kind.namespaced, kind.verbs, kind.subresources, more)))
    digest.update(encoded(kind.declared_schema()) or b"null")
    return digest.digest()


@cache
def _tables_hash() -> str:
    return hashlib.sha512(DATA.read_bytes()).hexdigest()
