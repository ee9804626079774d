"""The last word on a write: plug-ins that are asked before an object is stored, or goes.

They are asked about every create, update, patch and delete that comes through the API, those of a
dry run too. Those that may change an object come before it is validated, the others once all else
has been found to be good. Whoever has nothing against it returns.

Not asked: about reads, about reviews, about what the server does of itself (housekeeping, what
servers write to agree), and about the rewrite of a migration, which changes nothing about an
object but the version that it is encoded in.

Not here: any plug-in.
"""

from restow.admission.chain import Asked, Chain
from restow.admission.review import (
    Admission,
    AtOnce,
    Attributes,
    Mutation,
    Operation,
    WriteOf,
)

__all__ = [
    "Admission",
    "Asked",
    "AtOnce",
    "Attributes",
    "Chain",
    "Mutation",
    "Operation",
    "WriteOf",
]
