"""A Kubernetes-style API server that knows the storage version of every object.

Public names are those that these modules list in `__all__`; all others may change at any time.

    restow.aio                              clock, randomness and tasks, which a client is given
    restow.client                           a client of the API
    restow.apiserver                        one server, also with kinds of your own
    restow.admission                        what a check of writes is given
    restow.apimachinery.status              errors as the API tells them
    restow.apis.coordination_v1             kinds as typed structs
    restow.apis.internal_v1alpha1
    restow.apis.internal_vote_v1alpha1
    restow.apis.migration_v1alpha1
    restow.storage.interface                the storage contract
    restow.storage.errors
    restow.storage.memory                   the driver that is the reference
    restow.testing.storage_suite            tests for storage drivers of your own
    restow.testing.in_process               an API server in the process of a test

Not here: code. This module imports nothing, so that importing one part never loads the others.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
