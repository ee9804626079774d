"""Custom resources: from a stored definition to a resource that is hosted like any other.

`definitions` reads a CustomResourceDefinition, `hosting` makes a `Resource` of it, `shape` knows
its fields, and `following` keeps the catalogue in step with the store.

Not here: rules about definitions (`restow.kinds`), schemas themselves
(`restow.machinery.structural`), who serves and registers, and HTTP.
"""
