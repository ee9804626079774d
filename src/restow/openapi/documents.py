"""A finished document, small in memory, and the hash by which clients cache it.

Not here: what is in a document.
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

# Counts up when the same input makes other bytes, so that clients ask again.
FORMAT_REVISION: Final = 4

# Good enough, and a megabyte takes milliseconds.
_COMPRESSION_LEVEL: Final = 4
_GZIP: Final = 31  # how zlib is told to write and read that form
PIECE_BYTES_MAX: Final = 256 * 1024


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
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """The plain bytes in pieces: one of a large document would hold up everything else."""
        unpacking = zlib.decompressobj(wbits=_GZIP)
        found = [unpacking.decompress(self.compressed, PIECE_BYTES_MAX)]
        while unpacking.unconsumed_tail:
            found.append(unpacking.decompress(unpacking.unconsumed_tail, PIECE_BYTES_MAX))
        found.append(unpacking.flush())
        return [each for each in found if each]


def finish(pieces: Iterable[bytes], etag: str = "") -> Document:
    """Compress a body; its hash is its own unless one was made from its inputs."""
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
    """A hash of all that a document is made from.

    The index names a hash for every document. Made from the inputs, it costs no document, and is
    the same on all servers of one release.
    """
    return fingerprint_of([kind_digest(kind) for kind in in_order(list(kinds))], info)


def fingerprint_of(digests: Iterable[bytes], info: ApiInfo) -> str:
    """The same, from the digests of the kinds in their order: these can be kept."""
    whole = hashlib.sha512(f"{FORMAT_REVISION} {__version__} {_tables_hash()}\n".encode())
    whole.update(orjson.dumps(info))
    for each in digests:
        whole.update(each)
    return whole.hexdigest().upper()


def kind_digest(kind: ServedKind) -> bytes:
    """A hash of all that documents say of one kind."""
    names = (kind.group, kind.version, kind.kind, kind.plural, kind.singular, kind.type_name)
    more = (kind.list_kind, kind.selectable, kind.returns_deleted)
    digest = hashlib.sha512()
    digest.update(orjson.dumps((names, kind.namespaced, kind.verbs, kind.subresources, more)))
    digest.update(encoded(kind.declared_schema()) or b"null")
    return digest.digest()


@cache
def _tables_hash() -> str:
    return hashlib.sha512(DATA.read_bytes()).hexdigest()
