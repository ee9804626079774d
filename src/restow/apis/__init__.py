"""Typed structs of the kinds that this project's code reads, one module per group and version.

Wire names are defined here and nowhere else.

Not here: behaviour. No defaulting that needs a server, no storage, no decisions. Kinds that are
only passed through are in `restow.kinds`, as data.
"""
