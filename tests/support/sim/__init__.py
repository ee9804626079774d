"""The simulator: whole clusters of the production code on one seeded event loop with virtual time.

A *process* is everything that one server or one process of controllers runs: it can be paused, and
killed between any two steps. Between processes, and between them and the store, there is a network
that delays, loses and repeats. The store is in memory and holds every commit against the promises.
One seed is one world: played again it is the same to the last step.

    loop         steps of processes in an order that the seed decides; time passes when nobody runs
    network      what is sent, and what becomes of it
    servers      one life of an API server: its coordination, its chain, its housekeeping
    controllers  one life of trigger and migrator
    workload     what happens in a world, from its seed
    watching     what is checked at every commit, at every answer, and when all faults have ended
    advice       worlds in which operators ask whether a release is safe, and follow the answer
    mutants      what would go wrong if a rule were left out
    campaign     many seeds, and what they have come to

Not here: rules of the production code. What is not run is not proven.
"""
