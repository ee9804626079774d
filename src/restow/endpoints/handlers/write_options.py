"""Options of the writes of a request: field manager and admission."""

from __future__ import annotations

from restow.admission.review import Operation
from restow.endpoints.field_manager import manager_of
from restow.endpoints.handlers.server import Server
from restow.registry.write_options import ObjectWriteOptions
from restow.request.context import Context
from restow.request.parameters import is_dry_run


def write_options(
    server: Server, context: Context, operation: Operation, *, is_tracked: bool = False
) -> ObjectWriteOptions:
    """The options of a create or update. `is_tracked`: managedFields are computed already."""
    asked = server.admission.for_request(context, operation)
    return ObjectWriteOptions(
        manager=None if is_tracked else manager_of(context),
        mutate=None if asked is None else asked.mutate,
        check=server.admission.check_of(context),
        review=None if asked is None else asked.review,
        dry_run=is_dry_run(context.info),
        retries=context.retries,
        body_bytes=len(context.request.body),
        run_long=server.offload.of(context),
    )
