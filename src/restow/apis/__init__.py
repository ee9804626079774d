"""The kinds that our own code reads, as typed structs, one module per group and version.

Wire names are spelled here and nowhere else.

Not here: behaviour. No defaulting that needs a server, no storage, no decisions. Kinds that we
only pass on are in `restow.kinds`, as data.
"""
