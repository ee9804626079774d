"""The HTTP side of a server: the listener, the chain, the handlers, discovery.

The chain is one function in `app` that reads from top to bottom.

Not here: how objects are stored. A handler asks `restow.registry`, and at most names a revision or
a span of keys.
"""
