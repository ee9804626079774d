"""What a user may do: the `Authorizer` seam, and RBAC behind it.

Not here: who a user is, and how a request is answered.
"""

from restow.authorization.authorizer import Authorizer, MastersOnly

__all__ = ["Authorizer", "MastersOnly"]
