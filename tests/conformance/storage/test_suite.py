"""The storage suite on every driver."""

from restow.testing.storage_suite import (
    CommitSuite,
    CompactionSuite,
    ConcurrencySuite,
    HandleSuite,
    LimitSuite,
    ReadSuite,
    WatchSuite,
)


class TestReads(ReadSuite):
    pass


class TestCommits(CommitSuite):
    pass


class TestLimits(LimitSuite):
    pass


class TestWatches(WatchSuite):
    pass


class TestCompaction(CompactionSuite):
    pass


class TestHandles(HandleSuite):
    pass


class TestConcurrency(ConcurrencySuite):
    pass
