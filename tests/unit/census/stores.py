"""Values as API servers write them, and stores that contain them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from restow.aio import Runtime
from restow.apimachinery.protobuf_encode import write_envelope
from restow.census import Census, open_source, take_census
from restow.storage.drivers import open_storage
from restow.storage.interface import Delete, Done, Key, Put, Storage, Transaction

IN_FLIGHT = 200


def as_json(api_version: str, kind: str, **rest: object) -> bytes:
    return orjson.dumps({"kind": kind, "apiVersion": api_version, "metadata": {}, **rest}) + b"\n"


def as_protobuf(api_version: str, kind: str, raw: bytes = b"\x01\x02") -> bytes:
    return write_envelope(api_version, kind, raw)


def message(*fields: tuple[int, bytes]) -> bytes:
    """A protobuf message of fields that are all shorter than 128 bytes."""
    return b"".join(bytes((number << 3 | 2, len(data))) + data for number, data in fields)


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Storage]:
    storage = await open_storage(address, Runtime.system())
    try:
        yield storage
    finally:
        await storage.close()


async def put_all(storage: Storage, values: Mapping[str, bytes]) -> None:
    """One transaction per value, many at once."""
    pairs = list(values.items())
    for first in range(0, len(pairs), IN_FLIGHT):
        some = pairs[first : first + IN_FLIGHT]
        await commit_all(storage, [Transaction((), (Put(Key(key), value),)) for key, value in some])


async def delete_all(storage: Storage, keys: Iterable[str]) -> None:
    await commit_all(storage, [Transaction((), (Delete(Key(key)),)) for key in keys])


async def commit_all(storage: Storage, transactions: Sequence[Transaction]) -> None:
    outcomes = await asyncio.gather(*(storage.commit(each) for each in transactions))
    assert all(isinstance(outcome, Done) for outcome in outcomes)


async def fill(address: str, values: Mapping[str, bytes]) -> None:
    async with opened(address) as storage:
        await put_all(storage, values)


async def count(address: str) -> Census:
    source = await open_source(address, Runtime.system())
    try:
        return await take_census(source)
    finally:
        await source.close()


async def read_all(address: str, *prefixes: str) -> dict[str, bytes]:
    """Everything that a source yields; each key must occur once."""
    source = await open_source(address, Runtime.system())
    found: dict[str, bytes] = {}
    try:
        async for page in source.pages(prefixes or ("/",)):
            for key, value in page:
                assert key not in found
                found[key] = value
    finally:
        await source.close()
    return found


def files_beside(path: Path) -> dict[str, tuple[int, int]]:
    """The files in the directory of a file, with sizes and times."""
    return {
        each.name: (each.stat().st_size, each.stat().st_mtime_ns)
        for each in path.parent.iterdir()
        if each.is_file()
    }
