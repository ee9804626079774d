"""What can go wrong in coordination.

CoordinationError
├── MembershipLost       this server's key is gone; it must join anew before it writes
├── VersionUnsupported   it cannot read, or cannot write, what the cluster stores
│   └── KeyUnsupported       because that is encrypted with a key that it does not have
├── ModeRefused          it coordinates in another way than the servers that run
├── NotSettled           too many others were faster; try again
│   └── NotReported          the main servers have not taken what this one would say
├── ReportRefused        a server with another store says what cannot be
└── DefinitionMoved      the definition of a custom resource is another one by now
"""

from __future__ import annotations


class CoordinationError(Exception):
    """Something about the agreement between servers."""


class MembershipLost(CoordinationError):
    """The key of this server is gone."""


class VersionUnsupported(CoordinationError):
    """What is stored, or selected, is nothing that this server knows. The text says what to do."""


class KeyUnsupported(VersionUnsupported):
    """Something is encrypted, or would be, with a key that not all can read."""


class ModeRefused(CoordinationError):
    """The running servers coordinate in another mode."""


class NotSettled(CoordinationError):
    """A change was overtaken again and again."""


class NotReported(NotSettled):
    """A server with a store of its own could not tell the main servers what it would write."""


class ReportRefused(CoordinationError):
    """What such a server says contradicts what others, or itself, have said."""


class DefinitionMoved(CoordinationError):
    """A custom resource was to be registered as its definition no longer says."""
