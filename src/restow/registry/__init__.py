"""Objects on top of keys: what this server hosts, and how each object is stored and watched.

The catalogue, the strategy of each kind, the encoding on the way to storage, the watch cache;
`custom` makes resources of definitions, `housekeeping` does what one server does for all.

Not here: HTTP, and the choice of a version for storage. The policy is declared here and
satisfied in `restow.storageversion`.
"""
