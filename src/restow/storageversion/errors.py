"""Errors of the coordination between servers.

CoordinationError
├── MembershipLost       this server's key was deleted; it must join again to write
├── VersionUnsupported   this server cannot read or write what the cluster stores
│   └── KeyUnsupported       because it lacks an encryption key
├── ModeRefused          this server uses another coordination mode than the running servers
├── NotSettled           too many concurrent changes; try again
│   └── NotReported          the main servers have not accepted this server's entry
├── ReportRefused        an entry from another store contradicts recorded entries
└── DefinitionMoved      the CRD of a custom resource has changed meanwhile
"""

from __future__ import annotations


class CoordinationError(Exception):
    """An error of the coordination between servers."""


class MembershipLost(CoordinationError):
    """This server's membership key was deleted."""


class VersionUnsupported(CoordinationError):
    """This server does not support a stored or selected version. The message contains the
    remedy."""


class KeyUnsupported(VersionUnsupported):
    """A value is, or would be, encrypted with a key that some server does not have."""


class ModeRefused(CoordinationError):
    """The running servers coordinate in another mode."""


class NotSettled(CoordinationError):
    """Concurrent changes made every attempt at a change fail."""


class NotReported(NotSettled):
    """A server with its own store could not report its entry to the main servers."""


class ReportRefused(CoordinationError):
    """An entry from another store contradicts recorded entries."""


class DefinitionMoved(CoordinationError):
    """The CRD has changed since the registration of its resource began."""
