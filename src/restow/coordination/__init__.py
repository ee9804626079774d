"""How the servers of one cluster agree on the version that they store.

Identity leases, reports, votes, the write barrier, the collection of entries of dead servers.
Rules are pure functions; the rest are thin shells around them.

Not here: HTTP, and the migration of objects. Migration is done by `restow.controllers`, from
outside.
"""
