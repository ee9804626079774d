"""Errors of this package that are caused by its caller or by damaged stored data, not by clients.

    MachineryError
    ├── InvalidName         a string that is not a valid group, version, kind or resource
    ├── UnknownKind         no such kind is registered
    └── ConversionFailed    an object that cannot be converted to the requested version

Not here: responses to clients. These are `StatusError`s; `status.of_machinery_error` translates.
"""

from __future__ import annotations


class MachineryError(Exception):
    """Root of the errors of this package."""


class InvalidName(MachineryError):
    """A string that is not a valid name of the expected kind."""


class UnknownKind(MachineryError):
    """A kind, or a version of it, that is not registered."""


class ConversionFailed(MachineryError):
    """An object that cannot be converted to another version."""
