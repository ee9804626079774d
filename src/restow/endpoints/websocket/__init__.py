"""WebSockets: a pushed stream, such as a watch, for browsers.

    upgrade request -> handshake.py -> a Tunnel of the listener
    events of the stream -> streams.py -> one frame each (frames.py) -> the client

The server only sends: messages of a client are discarded, its pings are answered. No extensions,
so no compression.

Not here: authentication and authorization (the request chain), and the events of a watch
(`restow.endpoints.handlers.watch`). wsproto is used in this package only (docs/adr/0015).
"""

from restow.endpoints.websocket.handshake import agreed_headers, asks_for_websocket
from restow.endpoints.websocket.streams import as_websocket

__all__ = ["agreed_headers", "as_websocket", "asks_for_websocket"]
