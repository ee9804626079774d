"""Tables of the built-in kinds: their groups, versions, conversions and releases.

Data, loaded when first asked for.

Not here: code that treats one kind in a special way, and anything about one particular server.
What a server hosts is said in `restow.resources`.
"""
