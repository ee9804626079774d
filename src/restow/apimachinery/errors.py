"""What the machinery raises when its own caller, not a client, is wrong or stored data are bad.

    MachineryError
    ├── InvalidName         a text that is no group, version, kind or resource
    ├── UnknownKind         no such kind is registered
    └── ConversionFailed    an object that has no form in the version asked for

Not here: what a client is told. That is `StatusError`; `status.of_machinery_error` translates.
"""

from __future__ import annotations


class MachineryError(Exception):
    """Root of all that the machinery raises."""


class InvalidName(MachineryError):
    """A text that cannot be read as the name it should be."""


class UnknownKind(MachineryError):
    """A kind, or a version of it, that is not registered."""


class ConversionFailed(MachineryError):
    """An object that cannot be said in another version."""
