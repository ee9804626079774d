"""HTTP/1.1 over TCP or TLS: parses requests, calls the application, writes responses.

    client -> TlsConnection (tls_connection.py) -> ServerConnection (connection.py)
      -> RequestReader (reader.py, request_head.py, chunks.py) -> HttpRequest -> the application
      -> response, stream, tunnel or awaitable -> ServerConnection -> TlsConnection -> client

The application is one function. It responds synchronously whenever it can, and then nothing is
scheduled. Limits are in limits.py, streams in stream.py, tunnels in tunnel.py, certificates in
tls.py.

Not here: paths, users, kinds, and the contents of bodies. httptools is used in this package only.
"""

from restow.httpserver.limits import Limits
from restow.httpserver.listener_state import Counters
from restow.httpserver.long_answers import AnswerEnd, LongAnswer, follow_answer, revoke
from restow.httpserver.request import Headers, HttpRequest, Peer, PeerCertificate, RequestLine
from restow.httpserver.response import (
    Answer,
    App,
    AppResult,
    ErrorBody,
    Gate,
    HttpResponse,
    Quick,
    close_awaitable,
    close_unused,
    header_block,
)
from restow.httpserver.server import Listener
from restow.httpserver.shared_port import open_front_sockets
from restow.httpserver.stream import PullStream, PushStream, StreamWriter, encode_chunk
from restow.httpserver.tls import (
    NamedPair,
    TlsError,
    TlsFiles,
    TlsMaterial,
    TlsPart,
    TlsPolicy,
    check_pair,
)
from restow.httpserver.tunnel import Tunnel, TunnelEnd

__all__ = [
    "Answer",
    "AnswerEnd",
    "App",
    "AppResult",
    "Counters",
    "ErrorBody",
    "Gate",
    "Headers",
    "HttpRequest",
    "HttpResponse",
    "Limits",
    "Listener",
    "LongAnswer",
    "NamedPair",
    "Peer",
    "PeerCertificate",
    "PullStream",
    "PushStream",
    "Quick",
    "RequestLine",
    "StreamWriter",
    "TlsError",
    "TlsFiles",
    "TlsMaterial",
    "TlsPart",
    "TlsPolicy",
    "Tunnel",
    "TunnelEnd",
    "check_pair",
    "close_awaitable",
    "close_unused",
    "encode_chunk",
    "follow_answer",
    "header_block",
    "open_front_sockets",
    "revoke",
]
