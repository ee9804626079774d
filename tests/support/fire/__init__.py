"""Fault tests with real processes: three servers, a load, one fault, and checks of the result.

    result = await run_fire("sqlite", "kill-one", seed=1, seconds=30, directory=Path("fire"))

| file | content |
|---|---|
| `objects` | the kinds that are written, and the compared parts of an object |
| `record` | every operation of a client, every event of a watcher |
| `writers`, `watchers`, `load_process` | the load, in a separate process |
| `stores`, `stage` | the processes under test |
| `server_faults`, `store_faults`, `fault` | the injected faults |
| `truth` | the complete log of the store |
| `replay_check`, `watch_view`, `raw_audit`, `ledger` | the checked invariants |
| `run`, `soak` | one run from begin to end |

Not here: faults inside one process (`faulty_vfs`, `power_cut`), and the simulator.
"""
