"""A Kubernetes-style API server that tracks the storage version of every object.

Public names are those in `__all__` of these modules; all others may change at any time.

    restow.aio                              clock, randomness and tasks, parameters of a client
    restow.client                           a client of the API
    restow.apiserver                        one server, also with kinds of your own
    restow.admission                        the input of an admission check
    restow.apimachinery.status              API errors
    restow.apis.coordination_v1             kinds as typed structs
    restow.apis.internal_v1alpha1
    restow.apis.internal_vote_v1alpha1
    restow.apis.migration_v1alpha1
    restow.storage.interface                the storage contract
    restow.storage.errors
    restow.storage.memory                   the reference driver
    restow.testing.storage_suite            tests for storage drivers of your own
    restow.testing.in_process               an API server in the process of a test

Not here: code. This module imports nothing, so that importing one part never loads the others.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
