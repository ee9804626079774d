"""StorageScan: a review that counts raw values of the store, one page per request.

    POST  {"spec": {"prefix": "/registry/", "limit": 50000, "continue": ""}}  all fields optional

    400   a continue token that is not from this scan
    410   the revision of the scan was compacted: start again without a token
    422   fields with invalid values
    429   too many scans are running on this server

The counts name keys, and so objects of all namespaces: only cluster administrators may create it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from restow.apimachinery import field_errors, status
from restow.apimachinery.status_error import StatusCause
from restow.apis.storage_scan import LIMIT_MAX
from restow.endpoints.continue_tokens import PageStart
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.httpserver.response import HttpResponse
from restow.registry.resource import Object
from restow.request.bodies import read_object
from restow.request.context import Context
from restow.request.responses import respond_object
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.errors import Compacted
from restow.storage.interface import Revision
from restow.storageversion.store_scan import LIMIT_DEFAULT, StoreScanner

SCANS_MAX: Final = 2
"""Concurrent scans; they share the event loop with all other requests."""
BODY_BYTES_MAX: Final = 16 * 1024


async def scan_store(server: Server, context: Context) -> HttpResponse:
    """Scan one page."""
    resource = resource_of(context)
    if server.scanner is None:
        raise status.method_not_allowed(resource.kind.group_resource, context.info.verb)
    if len(context.request.body) > BODY_BYTES_MAX:
        raise status.body_too_large(BODY_BYTES_MAX)
    server.scanner.foreground.note_own()
    return await _scan(server, server.scanner, context, read_object(context, resource))


async def _scan(
    server: Server, scanner: StoreScanner, context: Context, obj: Object
) -> HttpResponse:
    prefix, limit, token = _read_spec(context, obj)
    bound_to = f"storagescan\0{prefix}"
    revision, start = None, ""
    if token:
        place = server.tokens.read(token, bound_to=bound_to)
        revision, start = Revision(place.revision), place.start
    if scanner.running >= SCANS_MAX:
        raise status.too_many_requests(f"{SCANS_MAX} scans of the store are running")
    try:
        page = await scanner.page(prefix, start=start, revision=revision, limit=limit)
    except Compacted as error:
        raise status.expired(
            "the revision of this scan was compacted: begin again without a continue token"
        ) from error
    answer: dict[str, Any] = msgspec.to_builtins(page.status)
    if page.next_key is not None:
        behind = PageStart(page.revision, page.next_key)
        answer["continue"] = server.tokens.make(behind, bound_to=bound_to)
    obj["metadata"].setdefault("creationTimestamp", None)
    return respond_object(context, 201, obj | {"status": answer})


def _read_spec(context: Context, obj: Object) -> tuple[str, int, str]:
    """Prefix, limit and token. Raises 422."""
    spec, causes = obj.get("spec") or {}, list[StatusCause]()
    prefix = spec.get("prefix") or OBJECTS_PREFIX
    if not prefix.startswith(OBJECTS_PREFIX):
        why = f"must begin with {OBJECTS_PREFIX}"
        causes.append(field_errors.invalid("spec.prefix", prefix, why))
    limit = spec.get("limit") or LIMIT_DEFAULT
    if not 0 < limit <= LIMIT_MAX:
        why = f"must be between 1 and {LIMIT_MAX}"
        causes.append(field_errors.invalid("spec.limit", limit, why))
    if causes:
        raise status.invalid(resource_of(context).kind.group_kind, "", causes)
    return prefix, limit, spec.get("continue") or ""
