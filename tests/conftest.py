"""For all tests: their sizes and order, and the final table with the time of each area."""

import gc
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.folder_fixtures import FolderFixtures
from tests.sizes import NAMED, SIZES

# These suites use plain asserts; let pytest rewrite them too.
pytest.register_assert_rewrite("restow.testing")

# Tests start hundreds of processes. Without cached bytecode, whatever the environment sets, most of
# the time would be spent on compiling.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# On some systems new files are group-writable, and servers refuse such files.
os.umask(0o022)

TESTS = Path(__file__).parent

COLLECTOR_THRESHOLDS = (20_000, 50, 100)
"""As in a server."""

# Folders for kinds of tests. The area is the folder inside, if there is one.
TEST_KINDS = frozenset({"unit", "conformance", "e2e"})

# Folders of slow tests: real processes, complete searches, simulated clusters, disk faults.
SLOW = frozenset({"conformance", "e2e", "model", "scenarios", "storage"})
SLOWEST = frozenset({"simulation"})

for _name, _sizes in NAMED.items():
    settings.register_profile(
        _name,
        deadline=None,  # tests share the machine; pytest's own limit is enough
        derandomize=_sizes.hypothesis_derandomised,
        # Derandomised runs replay nothing, so they need no database of failures.
        database=None if _sizes.hypothesis_derandomised else settings().database,
        max_examples=_sizes.hypothesis_examples,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    if _sizes is SIZES:
        settings.load_profile(_name)


@pytest.fixture(scope="session", autouse=True)
def warm_starts() -> Iterator[None]:
    """Starts servers faster, by forking. Processes started by `restow up` and the like start
    normally."""
    # Imported here: modules whose asserts are rewritten must not have been imported before.
    from tests.support.child_process import ChildProcess
    from tests.support.warm_start import WarmStarter

    if not SIZES.warm_starts:
        yield
        return
    ChildProcess.starter = starter = WarmStarter()
    yield
    ChildProcess.starter = None
    starter.close()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.timeout is None:
        config.option.timeout = SIZES.test_seconds_max
    if hasattr(config.option, "loadscopereorder"):  # an option of xdist
        config.option.loadscopereorder = False  # by the number of tests; see `priority_of`
    config.pluginmanager.register(AreaTimes(), "area-times")
    config.pluginmanager.register(FolderFixtures(), "folder-fixtures")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties.append(("area", area_of(item)))
    if hasattr(config, "workerinput"):  # in parallel
        items.sort(key=priority_of)


def pytest_collection_finish() -> None:
    """Runs Python's garbage collector less often, and excludes the collected tests, which are
    half of all objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def priority_of(item: pytest.Item) -> int:
    """Returns the order in which tests run: the longest files first. Short files come last: an
    idle worker runs many of them while another finishes its file."""
    folders = set(item.path.relative_to(TESTS).parts[:-1])
    return 0 if SLOWEST & folders else 1 if SLOW & folders else 2


def area_of(item: pytest.Item) -> str:
    """Returns the area of a test: its marker, otherwise its folder."""
    marker = item.get_closest_marker("area")
    if marker is not None:
        return str(marker.args[0])
    folders = item.path.relative_to(TESTS).parts[:-1]
    if not folders:
        return "other"
    if folders[0] in TEST_KINDS and len(folders) > 1:
        return folders[1]
    return folders[0]


class AreaTimes:
    """Adds up seconds and outcomes per area, and prints them at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.outcomes: dict[str, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        area = str(dict(report.user_properties).get("area", "other"))
        outcomes = self.outcomes.setdefault(area, Counter())
        self.seconds[area] = self.seconds.get(area, 0.0) + report.duration
        if report.when == "call" or report.outcome != "passed":
            outcomes[report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.seconds:
            return
        terminalreporter.section("time per area")
        for line in self._rows():
            terminalreporter.write_line(line)

    def _rows(self) -> Iterator[str]:
        width = max(map(len, [*self.seconds, "total"]))
        total: Counter[str] = Counter()
        for area, seconds in sorted(self.seconds.items(), key=lambda row: -row[1]):
            total += self.outcomes[area]
            yield self._row(area.ljust(width), seconds, self.outcomes[area])
        yield self._row("total".ljust(width), sum(self.seconds.values()), total)

    def _row(self, area: str, seconds: float, outcomes: Counter[str]) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        return f"{area}  {seconds:8.1f} s   {counts}"


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A test that runs a command in this process leaves the process' logging unchanged: the
    commands set the handlers and the level of the root logger."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
