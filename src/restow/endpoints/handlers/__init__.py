"""Request handlers: one file per verb, and one per subresource with an action of its own.

A handler gets the parts of the server and the context of the request, and returns a response or an
awaitable of one. It decodes and encodes, and calls `restow.registry` for everything else.
"""
