"""The built-in kinds: their tables, types, conversions, defaults, validation and releases.

Tables are data and are loaded on first use. Code for a single kind is in a function of its own, in
`conversions`, `defaults` or `validation`.

Not here: anything about one particular server. `restow.registry` has what a server hosts.
"""
