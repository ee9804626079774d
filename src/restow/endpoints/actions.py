"""Dispatch tables: the handler of each kind of request.

`VERBS`: handlers of objects, by verb. `ACTIONS`: subresources that are not a part of the stored
object, by name and verb. `UNSTORED`: kinds that are never stored, by group and plural; all other
kinds that are never stored are reviews.

Only tables. Handlers that need configuration are added where a server is assembled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from restow.apis.storage_scan import STORAGE_SCANS
from restow.endpoints.handlers.binding import bind
from restow.endpoints.handlers.component_statuses import component_statuses
from restow.endpoints.handlers.connect import connect, log, proxy
from restow.endpoints.handlers.create import create
from restow.endpoints.handlers.delete import delete, delete_collection
from restow.endpoints.handlers.eviction import evict
from restow.endpoints.handlers.get import get
from restow.endpoints.handlers.list_objects import list_objects
from restow.endpoints.handlers.patch import patch
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.store_scan import scan_store
from restow.endpoints.handlers.update import update
from restow.endpoints.handlers.watch import watch
from restow.httpserver.response import Answer
from restow.kinds.kind import VERBS_STATUS
from restow.request.context import Context

Action: TypeAlias = "Callable[[Server, Context], Awaitable[Answer]]"

VERBS: Final[dict[str, Action]] = {
    "get": get,
    "list": list_objects,
    "watch": watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
ACTIONS: Final[dict[tuple[str, str], Action]] = {
    ("attach", "create"): connect,
    ("attach", "get"): connect,
    ("binding", "create"): bind,
    ("eviction", "create"): evict,
    ("exec", "create"): connect,
    ("exec", "get"): connect,
    ("log", "get"): log,
    ("portforward", "create"): connect,
    ("portforward", "get"): connect,
    **{("proxy", verb): proxy for verb in ("create", "delete", *VERBS_STATUS)},
}
WRITTEN_TO: Final = {
    ("", "bindings", ""): (("", "pods"),),
    ("", "pods", "eviction"): (("", "pods"), ("policy", "poddisruptionbudgets")),
}
"""Writes to resources and subresources that replace the write to the resource itself, or extend
it."""
UNSTORED: Final[dict[tuple[str, str], Action]] = {
    ("", "bindings"): bind,
    ("", "componentstatuses"): component_statuses,
    (STORAGE_SCANS.group, STORAGE_SCANS.resource): scan_store,
}
