"""The resources that a server hosts, and how their objects are stored and watched.

Contains the catalog of resources, the generic strategy, the encoding for storage, and the watch
cache. `custom` makes resources from CRDs.

Not here: HTTP, and how servers choose the storage version. The encoding policy is declared here
and implemented in `restow.storageversion`.
"""
