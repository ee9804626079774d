"""The test suite that every storage driver must pass.

A driver's test module provides a fixture `harness` (see `Harness`) and binds the classes:

    class TestReads(ReadSuite): ...

The suite never assumes the first revision of a store, nor that its handle is the only one; it does
assume that the store holds no keys and that there are no other writers.

Not here: guarantees of a single driver (crashes, full disks, lost connections).
"""

from restow.testing.storage_suite.commits import CommitSuite
from restow.testing.storage_suite.compaction import CompactionSuite
from restow.testing.storage_suite.concurrency import ConcurrencySuite
from restow.testing.storage_suite.handles import HandleSuite
from restow.testing.storage_suite.harness import (
    Harness,
    MemoryHarness,
    SharedHarness,
    SuiteSizes,
    wipe,
)
from restow.testing.storage_suite.limits import LimitSuite
from restow.testing.storage_suite.reads import ReadSuite
from restow.testing.storage_suite.watches import WatchSuite

__all__ = [
    "CommitSuite",
    "CompactionSuite",
    "ConcurrencySuite",
    "HandleSuite",
    "Harness",
    "LimitSuite",
    "MemoryHarness",
    "ReadSuite",
    "SharedHarness",
    "SuiteSizes",
    "WatchSuite",
    "wipe",
]
