"""The HTTP API of a server: request chain, handlers, discovery, OpenAPI, health.

The request chain is one function in `app` that reads from top to bottom.

Not here: storage. A handler calls `restow.registry`, and at most names a revision or a key range.
"""
