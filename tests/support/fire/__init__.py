"""Real processes under fire: three servers, a load, one fault, and the judgement of what happened.

    result = await run_fire("sqlite", "kill-one", seed=1, seconds=30, directory=Path("fire"))

| file | is about |
|---|---|
| `objects` | the kinds that are written, and what is compared of an object |
| `record` | every operation of a client, every event of a watcher |
| `writers`, `watchers`, `load_process` | the load, in a process of its own |
| `stores`, `stage` | the processes that are under fire |
| `server_faults`, `store_faults`, `fault` | what is done to them |
| `truth` | the log of the store, whole |
| `replay_check`, `watch_view`, `raw_audit`, `ledger` | what must hold |
| `run`, `soak` | one run from begin to end |

Not here: faults inside one process (`faulty_vfs`, `power_cut`), and the simulator.
"""
