"""componentstatuses: the health of the server's dependencies. Computed, not stored.

There is one component, the store, under the name that clients expect. It is probed by a read of its
revision, as in a consistent read.
"""

from __future__ import annotations

from typing import Final

import orjson

from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.list_objects import list_answer
from restow.endpoints.handlers.server import Server
from restow.endpoints.list_selectors import ListSelectors
from restow.endpoints.representations import respond_in_form
from restow.httpserver.response import Answer
from restow.registry.resource import Object
from restow.request.context import Context
from restow.request.responses import Bodies
from restow.storage.errors import StorageError

STORE: Final = "etcd-0"
DEPRECATION: Final = "v1 ComponentStatus is deprecated in v1.19+"
_RESOURCE: Final = GroupResource("", "componentstatus")


async def component_statuses(server: Server, context: Context) -> Answer:
    """GET of one component, or of all."""
    context.warn(DEPRECATION)
    info = context.info
    if info.name and info.name != STORE:
        raise status.not_found(_RESOURCE, info.name)
    if info.name:
        obj = {"kind": "ComponentStatus", "apiVersion": "v1", **await _store(server)}
        body = orjson.dumps(obj)
        return respond_in_form(context, 200, body, clock=server.runtime.clock)
    selection = ListSelectors(resource_of(context), info)
    body = orjson.dumps(await _store(server))
    found = [body] if selection.matches(STORE, (0, "v1", body)) else []
    return await list_answer(server, context, Bodies.of(found), {})


async def _store(server: Server) -> Object:
    condition = {"type": "Healthy", "status": "True", "message": "ok"}
    try:
        await server.store.caches.freshen()
    except StorageError as error:
        condition |= {"status": "False", "message": str(error)}
    return {"metadata": {"name": STORE}, "conditions": [condition]}
