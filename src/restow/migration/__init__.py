"""Controllers that work through the API: the trigger and the migrator of storage versions.

Each has a pure part that decides and a shell that acts.

Not here: storage, resources, coordination. The controllers run against real Kubernetes unchanged,
so they depend only on the API.
"""
