"""A child process that uses a store, for tests that kill it or run concurrently with it.

    python -m tests.support.sqlite_child COMMAND PATH …

    write PATH NAME     commits until it is killed
    flood PATH SECONDS  commits as fast as it can, after a line of input
    stamp PATH COUNT    commits values with their commit time, after a line of input
    stay PATH           keeps the store open until a line of input, or its end
    hold PATH SECONDS   holds the write lock, without opening the store

It prints `open` when it has opened the store, and with `write` it prints `done NUMBER REVISION`
after each acknowledged commit, never before.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from restow.aio import Runtime
from restow.storage.errors import Compacted
from restow.storage.interface import Done, Key, Put, Revision, Storage, Transaction
from restow.storage.sqlite import open_sqlite
from restow.storage.sqlite.file_setup import peers_directory
from restow.storage.sqlite.locks import WriteLock

PREFIX: Final = "/restow/child/"
SHARED: Final = Key("/restow/child-shared")
WRITERS: Final = 6
STAMP_PAUSE_SECONDS: Final = 0.004


def say(*words: object) -> None:
    """Write one line at once: the process may be killed in the next instant."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def listen() -> None:
    """Wait for a line of input, or its end."""
    await asyncio.to_thread(sys.stdin.readline)


def key_of(name: str, number: int) -> Key:
    return Key(f"{PREFIX}{name}/{number:07}")


def value_of(name: str, number: int) -> bytes:
    """Sizes from a few bytes to some pages."""
    return f"{name}/{number}/".encode() * (1 + (number * 37) % 400)


async def write(storage: Storage, name: str) -> None:
    """Acknowledged writes from several tasks, with a compaction now and then."""
    numbers = count()
    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(_write_one_by_one(storage, name, numbers))


async def _write_one_by_one(storage: Storage, name: str, numbers: count[int]) -> None:
    for number in numbers:
        value = value_of(name, number)
        writes = (Put(key_of(name, number), value), Put(SHARED, value))
        outcome = await storage.commit(Transaction((), writes))
        if not isinstance(outcome, Done):
            raise TypeError(f"{name}/{number}: {outcome}")
        say("done", number, outcome.revision)
        if number % 40 == 39:
            with suppress(Compacted):  # another one was faster
                await storage.compact(Revision(outcome.revision - 20))


async def flood(storage: Storage, runtime: Runtime, seconds: float) -> None:
    """Count the commits within some seconds from a common start."""
    await listen()
    end = runtime.clock.monotonic() + seconds
    commits = 0

    async def writer(number: int) -> None:
        nonlocal commits
        key = Key(f"{PREFIX}{os.getpid()}/{number}")
        while runtime.clock.monotonic() < end:
            await storage.commit(Transaction((), (Put(key, b"%d" % commits),)))
            commits += 1

    async with asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(writer(number))
    say("commits", commits)


async def stamp(storage: Storage, runtime: Runtime, commits: int) -> None:
    """Each value is its commit time on the monotonic clock, which all processes share."""
    await listen()
    for _ in range(commits):
        value = repr(runtime.clock.monotonic()).encode()
        await storage.commit(Transaction((), (Put(SHARED, value),)))
        await runtime.clock.sleep(STAMP_PAUSE_SECONDS)


async def use(command: str, path: Path, rest: list[str]) -> None:
    runtime = Runtime.system()
    storage = await open_sqlite(path, runtime)
    say("open", await storage.revision())
    match command, rest:
        case "write", [name]:
            await write(storage, name)
        case "flood", [seconds]:
            await flood(storage, runtime, float(seconds))
        case "stamp", [commits]:
            await stamp(storage, runtime, int(commits))
        case "stay", []:
            await listen()
        case _:
            raise ValueError(f"unknown: {command} {rest}")
    await storage.close()


async def hold(path: Path, seconds: float) -> None:
    lock = WriteLock(peers_directory(path))
    lock.acquire()
    say("open", 0)
    await Runtime.system().clock.sleep(seconds)
    lock.release()
    lock.close()


def main() -> None:
    command, path, *rest = sys.argv[1:]
    if command == "hold":
        asyncio.run(hold(Path(path), float(rest[0])))
    else:
        asyncio.run(use(command, Path(path), rest))


if __name__ == "__main__":
    main()
