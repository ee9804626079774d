"""Authorization: the `Authorizer` interface, and RBAC.

Not here: authentication, and the handling of requests.
"""

from restow.authorization.authorizer import Authorizer

__all__ = ["Authorizer"]
