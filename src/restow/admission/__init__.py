"""Admission control: plug-ins that review or change an object before it is stored or deleted.

Plug-ins run for every create, update, patch and delete through the API, including dry runs.
Mutating plug-ins run before the object is validated, validating plug-ins after all other checks
have passed. A plug-in that accepts a write returns; one that rejects it raises.

Plug-ins do not run for reads, for reviews (such as SubjectAccessReview), for writes of the server
itself (controllers, coordination between servers), or for the rewrite of a migration, which changes
only the version in which an object is encoded.

Not here: the choice and order of a server's plug-ins (`restow.apiserver.admission`).
"""

from restow.admission.chain import Chain, RequestAdmission
from restow.admission.review import (
    Admission,
    Attributes,
    Mutation,
    ObjectCheck,
    Operation,
    WriteOf,
)

__all__ = [
    "Admission",
    "Attributes",
    "Chain",
    "Mutation",
    "ObjectCheck",
    "Operation",
    "RequestAdmission",
    "WriteOf",
]
