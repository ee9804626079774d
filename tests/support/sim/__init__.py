"""The simulator: whole clusters of the production code on one seeded event loop with virtual time.

A *process* is everything that one server or one process of controllers runs: it can be paused, and
killed between any two steps. Between processes, and between them and the store, there is a network
that delays, loses and repeats messages. The store is in memory and checks the invariants at every
commit. One seed is one world: a replay is the same to the last step.

    loop         steps of processes in a seeded order; time advances when no process can run
    network      messages, and the faults that affect them
    servers      one incarnation of an API server: its coordination, its chain, its controllers
    controllers  one incarnation of trigger and migrator
    plan         what happens in a world, from its seed
    clients      writers and watchers, which check every response
    invariants   the rules, and where each is checked
    advice       worlds in which operators ask whether a release is safe, and follow the answer
    mutants      the production code with one rule removed
    campaign     many seeds, and their combined results

Not here: rules of the production code. Code that does not run is not tested.
"""
