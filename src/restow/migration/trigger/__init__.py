"""When to migrate a resource, and what is known of how it is stored: the triggering controller.

It looks at what servers say they write (StorageVersions, or the hashes in discovery), keeps one
StorageState a resource, and asks for migrations. `decide` is the whole of its judgement: values in,
actions out.

Not here: rewriting objects (the migrator's), and any input or output in the rules.
"""
