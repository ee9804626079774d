"""The built-in kinds: their tables, types, conversions, defaults, validation and releases.

Tables are data and are loaded when first asked for. What only one kind needs stands in a function
of its own, in `conversions`, `defaults` or `validation`.

Not here: anything about one particular server. What a server hosts is said in `restow.registry`.
"""
