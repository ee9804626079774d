"""What all kinds have in common: names, the registry of types, conversion and encoding.

Also selectors, patches, schemas, the hash of a storage version, and the tree of status errors.
Values in, values out.

Not here: a particular kind, input or output, and time.
"""
