"""The migrator: rewrites all objects that are not stored in the agreed version.

It processes migrations page by page: with the server's own rewrite where there is one, otherwise
with small conditional patches. It verifies the result with a second pass, and aborts when the
servers' agreement changes.

Not here: when to migrate, and updates of the persisted hashes (both are the trigger's).
"""
