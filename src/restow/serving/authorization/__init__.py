"""What a user may do: the `Authorizer` seam, and the rules while there are no roles yet."""

from restow.serving.authorization.rules import Authorizer, MastersOnly

__all__ = ["Authorizer", "MastersOnly"]
