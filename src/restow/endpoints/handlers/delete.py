"""delete and deletecollection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import orjson

from restow.apimachinery import field_errors, status
from restow.apimachinery.names import GroupKind, GroupResource
from restow.apimachinery.status_error import StatusCause
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.list_objects import list_answer, read_query, slices_of
from restow.endpoints.handlers.server import Server
from restow.endpoints.list_selectors import ListSelectors
from restow.endpoints.partial_metadata import metadata_bytes
from restow.endpoints.representations import respond_in_form
from restow.httpserver.response import Answer, HttpResponse
from restow.registry.store import DeleteOptions, ObjectWriteOptions, Written
from restow.registry.watch_cache import CachedObjects, Entry
from restow.registry.write_options import Retries
from restow.request.bodies import decoded
from restow.request.context import Context
from restow.request.delete_options import read_options
from restow.request.parameters import is_dry_run
from restow.request.responses import Bodies, respond_object

DELETES_AT_ONCE: Final = 32
CONVERTED_AT_ONCE: Final = 480
"""Objects that are converted, if necessary, and deleted in one batch."""
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_JOBS: Final = GroupResource("batch", "jobs")
_JOBS_WARNING: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background"
    " to remove them or set propagationPolicy=Orphan to suppress this warning"
)
_UNDELETABLE: Final = frozenset({"default", "kube-system", "kube-public"})


async def delete(server: Server, context: Context) -> HttpResponse:
    """DELETE of an object."""
    resource, info = resource_of(context), context.info
    sent_options, stays_code = await _options(server, context)
    if resource.kind.plural == "namespaces" and not resource.group and info.name in _UNDELETABLE:
        raise status.forbidden(
            "this namespace may not be deleted",
            resource=resource.kind.group_resource,
            name=info.name,
        )
    path = resource.path_of(info.namespace, info.name)
    written = await server.store.delete(
        resource,
        info.version,
        path,
        sent_options,
        options=_write_options(server, context, sent_options, context.retries),
    )
    if not written.removed or resource.kind.returns_deleted:
        body = written.body
        return respond_in_form(
            context, 200 if written.removed else stays_code, body, clock=server.runtime.clock
        )
    uid = orjson.loads(metadata_bytes(written.body)).get("uid", "")
    details = {"name": info.name, "group": resource.group, "kind": resource.plural, "uid": uid}
    return respond_object(
        context,
        200,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {name: value for name, value in details.items() if value},
        },
    )


async def delete_collection(server: Server, context: Context) -> Answer:
    """DELETE of a collection."""
    resource, info = resource_of(context), context.info
    sent_options, _ = await _options(server, context)
    selection = ListSelectors(resource, info)
    limit = read_query(server, context, selection).limit
    cache = await server.store.read(resource)
    chosen = await _selected(server, context, selection, cache.select(selection.prefix))
    if limit:
        chosen = chosen[:limit]
    deleted: list[bytes] = []
    for first in range(0, len(chosen), CONVERTED_AT_ONCE):
        some = chosen[first : first + CONVERTED_AT_ONCE]
        # Each is deleted separately, but conversion webhooks are called once for the batch.
        seen = await server.store.in_version(
            resource, [entry for _, entry in some], resource.api_version(info.version)
        )
        found = {path: entry for (path, _), entry in zip(some, seen, strict=True)}
        deleted += await _delete_all(server, context, found, sent_options)
    metadata = {"resourceVersion": str(server.store.position)}
    return await list_answer(server, context, Bodies.of(deleted), metadata)


async def _selected(
    server: Server, context: Context, selection: ListSelectors, page: CachedObjects
) -> list[tuple[str, Entry]]:
    """The selected objects. Selectors apply to labels and fields in the version of the request."""
    if not selection:
        return list(zip(page.keys, page.entries, strict=True))
    resource, chosen = resource_of(context), []
    api_version = resource.api_version(context.info.version)
    for first, last in slices_of(page.entries):
        if first:
            await server.runtime.clock.sleep(0)
        paths, entries = page.keys[first:last], page.entries[first:last]
        seen = await server.store.in_version(resource, entries, api_version)
        matches = map(selection.matches, paths, seen)
        found = zip(paths, entries, matches, strict=True)
        chosen += [(path, entry) for path, entry, is_chosen in found if is_chosen]
    return chosen


async def _delete_all(
    server: Server, context: Context, found: dict[str, Entry], sent_options: DeleteOptions
) -> list[bytes]:
    """Delete objects in batches; return those that existed, as they were before."""
    resource, info = resource_of(context), context.info
    deleted: list[bytes] = []
    paths, api_version = list(found), resource.api_version(info.version)
    for first in range(0, len(paths), DELETES_AT_ONCE):
        some = paths[first : first + DELETES_AT_ONCE]
        outcomes = await asyncio.gather(
            *(
                server.store.delete(
                    resource,
                    info.version,
                    path,
                    sent_options,
                    # Each object has its own retries: they are independent writes.
                    options=_write_options(server, context, sent_options, Retries()),
                )
                for path in some
            ),
            return_exceptions=True,
        )
        for path, outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, Written):
                deleted.append(server.store.body_of(resource, found[path], api_version))
            elif not isinstance(outcome, status.NotFound):  # else it was deleted concurrently
                raise outcome
    return deleted


def _write_options(
    server: Server, context: Context, sent: DeleteOptions, retries: Retries
) -> ObjectWriteOptions:
    asked = server.admission.for_request(context, "DELETE")
    review = None if asked is None else asked.review_delete
    return ObjectWriteOptions(
        review=review, dry_run=sent.dry_run, retries=retries, run_long=server.offload.of(context)
    )


async def _options(server: Server, context: Context) -> tuple[DeleteOptions, int]:
    """The DeleteOptions, and the status code for an object whose deletion has only begun."""
    options = await decoded(server.offload, context, read_options)
    sent_options = supported_options(server, context, options_of(context, options))
    # Clients that set the deprecated option expect 202.
    return sent_options, 202 if options.get("orphanDependents") is False else 200


def supported_options(
    server: Server, context: Context, sent_options: DeleteOptions
) -> DeleteOptions:
    """DeleteOptions without those that need garbage collection, if this cluster has none."""
    kind = resource_of(context).kind
    if (sent_options.policy or kind.orphans_by_default) and not server.collects_dependents:
        # No garbage collector would remove the finalizer of another policy.
        return replace(sent_options, policy="Background")
    if not sent_options.policy and kind.orphans_by_default and kind.group_resource == _JOBS:
        context.warn(_JOBS_WARNING)
    return sent_options


def options_of(context: Context, options: dict[str, Any]) -> DeleteOptions:
    """Parse DeleteOptions. Raises 422."""
    policy = options.get("propagationPolicy") or ""
    orphan = options.get("orphanDependents")
    if policy and policy not in _POLICIES:
        cause = field_errors.not_supported("propagationPolicy", policy, (*_POLICIES, "nil"))
        raise _invalid_options(cause)
    if policy and orphan is not None:
        cause = field_errors.invalid(
            "propagationPolicy",
            policy,
            "orphanDependents and deletionPropagation cannot be both set",
        )
        raise _invalid_options(cause)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = options.get("preconditions") or {}
    grace_seconds = options.get("gracePeriodSeconds")
    dry_run = options.get("dryRun") or []
    if any(each != "All" for each in dry_run):
        cause = field_errors.not_supported("dryRun", dry_run, ["All"])
        raise _invalid_options(cause)
    return DeleteOptions(
        policy=policy,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry_run) or is_dry_run(context.info),
        # A negative grace period means the shortest one.
        grace_seconds=1 if grace_seconds is not None and grace_seconds < 0 else grace_seconds,
    )


def _invalid_options(cause: StatusCause) -> status.StatusError:
    return status.invalid(GroupKind("meta.k8s.io", "DeleteOptions"), "", [cause])
