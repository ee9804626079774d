"""Loops that look at the API and act through it: the trigger and the migrator of storage.

Each has a pure part that decides and a shell that acts.

Not here: storage, resources, coordination. Controllers run against real Kubernetes unchanged, so
they know only the API.
"""
