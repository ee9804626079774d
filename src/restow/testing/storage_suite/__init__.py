"""The one suite that every storage driver must pass.

A driver's test module gives a fixture `harness` (see `Harness`) and binds the classes:

    class TestReads(ReadSuite): ...

The suite never assumes at which revision a store begins, nor that its handle is the only one; it
does assume that the store holds no keys and that nobody else writes.

Not here: what only one driver promises (crashes, full disks, lost connections).
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
