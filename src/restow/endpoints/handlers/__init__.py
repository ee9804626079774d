"""What the server does for a request: one file per verb.

A handler gets the server's parts and the request's context, and returns an answer or something to
await. It decodes and encodes, and asks `restow.registry` for everything else.
"""
