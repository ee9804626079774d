"""How large each test is: all sizes, in one place.

`make test` runs them small, `make test-long` runs the same tests in full. This is the only file
that reads RESTOW_TEST_SIZE. A new size is one line in the class and one in each instance.
"""

import os
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One number for each test that has a size."""

    test_seconds_max: float
    """The time limit of one test."""

    warm_starts: bool
    """Whether servers are forked from a process that has imported their code."""

    hypothesis_examples: int
    """Examples per property, unless the test sets another number."""

    hypothesis_derandomised: bool
    """Whether every run uses the same examples."""

    fuzz_examples: int
    """Nearly valid inputs, for each parser."""

    fuzz_runs: int
    """Inputs of one run over all parsers, guided by coverage."""

    generated_requests: int
    """Valid requests according to the OpenAPI documents, for each operation."""

    generated_requests_bad: int
    """Invalid requests; they take longer to generate."""

    generated_alike_once: bool
    """Whether behaviour that all kinds of a group share is tested for one of them only."""

    generated_properties_max: int
    """Fields of one schema, with references expanded, that generated bodies may have."""

    client_suites: tuple[str, ...]
    """Tests from the packages of clients, run against this server."""

    sqlite_kill_cycles: int
    """How often the writing process is killed."""

    sqlite_fault_stride: int
    """Every n-th write of the workload fails."""

    sqlite_power_cuts: int
    """How often a power failure is simulated; a workload has a few thousand points for it."""

    storage_workers: int
    """Processes that write one store at the same time."""

    storage_increments: int
    """Increments by each of them."""

    storage_commits: int
    """Length of a random history; a watch is opened from each of its revisions."""

    storage_machine_examples: int
    """Programs on which a driver is compared with the in-memory store."""

    storage_machine_steps: int
    """Steps of each of these programs."""

    coordination_servers: int
    """Servers that start together."""

    coordination_kinds: int
    """Kinds that each of them reports, besides the built-in ones."""

    aggregated_rollings: tuple[tuple[str, str], ...]
    """Stores of the main servers, combined with the stores of aggregated servers' objects, in
    which releases are rolled up and down."""

    coordination_seeds: int
    """Random scenarios of servers, for each mode."""

    coordination_steps: int
    """Steps of each of them."""

    simulated_worlds: int
    """Seeds of the simulator."""

    advice_worlds: int
    """Seeds of the simulator's clusters for upgrade advice."""

    mutant_worlds: int
    """Seeds tried for a mutant that its recorded seed no longer detects."""

    migration_objects: int
    """Objects that are migrated during faults."""

    migration_rollbacks: int
    """Rollbacks of a server in the middle of a migration, for each store."""

    switch_writes: int
    """Writes of a custom resource while its storage version switches repeatedly."""

    switch_writes_converted: int
    """The same, with a slow conversion webhook."""

    migration_stores: tuple[str, ...]
    """Stores for tests that hardly depend on the store."""

    fire_seconds: float
    """Minimum time of load on servers during an operation."""

    fire_stores: tuple[str, ...]
    """The stores of these servers."""

    mixed_stores: tuple[str, ...]
    """Stores on which servers of an earlier commit run beside current ones."""

    ledger_stores: tuple[str, ...]
    """Stores of the clusters under fault injection, with a ledger of all writes."""

    ledger_rounds: int
    """How often releases are rolled up and down there."""

    ledger_writes: int
    """Acknowledged writes to wait for after each step."""

    ledger_per_second: float
    """Operations per second that the load generator attempts."""


SMALL: Final = Sizes(
    test_seconds_max=120,
    warm_starts=True,
    hypothesis_examples=100,
    hypothesis_derandomised=True,
    fuzz_examples=100,
    fuzz_runs=5_000,
    generated_requests=3,
    generated_requests_bad=2,
    generated_alike_once=True,
    generated_properties_max=5,
    client_suites=("discovery",),
    sqlite_kill_cycles=20,
    sqlite_fault_stride=30,
    sqlite_power_cuts=200,
    storage_workers=4,
    storage_increments=15,
    storage_commits=60,
    storage_machine_examples=8,
    storage_machine_steps=30,
    coordination_servers=3,
    coordination_kinds=50,
    aggregated_rollings=(("sqlite", "own"), ("etcd", "shared")),
    coordination_seeds=20,
    coordination_steps=30,
    simulated_worlds=100,
    advice_worlds=60,
    mutant_worlds=160,
    migration_objects=30,
    migration_rollbacks=1,
    switch_writes=5_000,
    switch_writes_converted=400,
    migration_stores=("sqlite",),
    fire_seconds=4.0,
    fire_stores=("sqlite",),
    mixed_stores=(),
    ledger_stores=("sqlite",),
    ledger_rounds=1,
    ledger_writes=40,
    ledger_per_second=120.0,
)

LONG: Final = Sizes(
    test_seconds_max=3600,
    warm_starts=False,
    hypothesis_examples=2000,
    hypothesis_derandomised=False,
    fuzz_examples=20_000,
    fuzz_runs=2_000_000,
    generated_requests=10,
    generated_requests_bad=10,
    generated_alike_once=False,
    generated_properties_max=1_000,
    client_suites=("discovery", "kubernetes", "kubernetes.aio", "kubernetes_asyncio"),
    sqlite_kill_cycles=1000,
    sqlite_fault_stride=1,
    sqlite_power_cuts=100_000,
    storage_workers=8,
    storage_increments=500,
    storage_commits=400,
    storage_machine_examples=500,
    storage_machine_steps=60,
    coordination_servers=5,
    coordination_kinds=200,
    aggregated_rollings=(
        *(("sqlite", "own"), ("sqlite", "shared")),
        *(("etcd", "own"), ("etcd", "shared")),
    ),
    coordination_seeds=1000,
    coordination_steps=60,
    simulated_worlds=2_000,
    advice_worlds=1_000,
    mutant_worlds=2_000,
    migration_objects=200,
    migration_rollbacks=10,
    switch_writes=1_000_000,
    switch_writes_converted=20_000,
    migration_stores=("sqlite", "etcd"),
    fire_seconds=30.0,
    fire_stores=("sqlite", "etcd1", "etcd3"),
    mixed_stores=("sqlite", "etcd"),
    ledger_stores=("sqlite", "etcd"),
    ledger_rounds=3,
    ledger_writes=600,
    ledger_per_second=200.0,
)

PROVE: Final = replace(
    SMALL,
    test_seconds_max=7200,
    sqlite_power_cuts=10_000,
    sqlite_fault_stride=5,
    mixed_stores=LONG.mixed_stores,
    ledger_stores=LONG.ledger_stores,
    ledger_rounds=LONG.ledger_rounds,
    ledger_writes=LONG.ledger_writes,
    ledger_per_second=LONG.ledger_per_second,
)
"""For `make prove`, which uses these tests for disks and the ledger, and its own runs for the
rest."""

NAMED: Final = {"small": SMALL, "long": LONG, "prove": PROVE}

SIZES: Final = NAMED[os.environ.get("RESTOW_TEST_SIZE") or "small"]
