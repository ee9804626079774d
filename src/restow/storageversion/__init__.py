"""The protocol by which the servers of one cluster agree on the storage version of each resource.

It consists of identity leases, StorageVersions, votes, the write barrier, and the garbage
collection of entries of expired servers. The rules are pure functions; the other modules read
storage, call them, and commit the result.

Not here: HTTP, and the decision to migrate, which `restow.migration` makes as a client. The
server's part of a migration, one page at a time under the fence, is in `rewrite`.
"""
