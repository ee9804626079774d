"""Generic machinery for all kinds: names, type registry, conversion and encoding.

Also selectors, patches, schemas, the storage version hash, and status errors. Values in, values
out.

Not here: particular kinds, I/O, and time.
"""
