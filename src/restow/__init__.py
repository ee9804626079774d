"""A Kubernetes-style API server that knows the storage version of every object.

Public names are those that `restow.apis`, `restow.client`, `restow.storage.interface` and
`restow.testing` list in `__all__`.

Not here: code. This module imports nothing, so that importing one part never loads the others.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
