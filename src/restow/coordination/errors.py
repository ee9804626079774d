"""What can go wrong in coordination.

CoordinationError
├── MembershipLost       this server's key is gone; it must join anew before it writes
├── VersionUnsupported   it cannot read, or cannot write, what the cluster stores
├── ModeRefused          it coordinates in another way than the servers that run
├── NotSettled           too many others were faster; try again
└── DefinitionMoved      the definition of a custom resource is another one by now
"""

from __future__ import annotations


class CoordinationError(Exception):
    """Something about the agreement between servers."""


class MembershipLost(CoordinationError):
    """The key of this server is gone."""


class VersionUnsupported(CoordinationError):
    """What is stored, or selected, is nothing that this server knows. The text says what to do."""


class ModeRefused(CoordinationError):
    """The running servers coordinate in another mode."""


class NotSettled(CoordinationError):
    """A change was overtaken again and again."""


class DefinitionMoved(CoordinationError):
    """A custom resource was to be registered as its definition no longer says."""
