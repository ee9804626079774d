"""Rewriting what is stored in another version than the agreed one: the migrator.

It works off migration requests, page by page: by the server's own rewrite where there is one,
otherwise by small conditional patches. It proves what it claims, and stops when the servers do not
agree any more.

Not here: when to migrate, and what follows from it for the persisted hashes (the trigger's).
"""
