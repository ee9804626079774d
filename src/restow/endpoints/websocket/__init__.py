"""WebSockets: a pushed stream, such as a watch, for pages that open one.

    a request that asks for it -> handshake.py -> a Tunnel of the listener
    events of the stream -> streams.py -> one frame each (frames.py) -> the client

Only what a server needs that has something to tell and nothing to be told: messages of a client
are read past, its pings are answered. No extensions, so no compression.

Not here: who may ask (the chain), and what is told (`restow.endpoints.handlers.watch`).
"""

from restow.endpoints.websocket.handshake import agreed_headers, asks_for_websocket
from restow.endpoints.websocket.streams import as_websocket

__all__ = ["agreed_headers", "as_websocket", "asks_for_websocket"]
