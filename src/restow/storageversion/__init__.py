"""How the servers of one cluster agree on the version that they store.

Identity leases, reports, votes, the write barrier, the collection of entries of dead servers.
Rules are pure functions; the rest are thin shells around them.

Not here: HTTP, and the decision to migrate, which `restow.migration` makes from outside. What a
server does of the work itself, one page at a time under the fence, is in `rewrite`.
"""
