"""The trigger: creates migrations when storage versions change, and maintains StorageStates.

It reads the servers' storage versions (StorageVersions, or the hashes in discovery), keeps one
StorageState per resource, and creates migrations. `decide` has all the rules: values in, actions
out.

Not here: rewriting objects (the migrator's), and any input or output in the rules.
"""
