"""delete and deletecollection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import orjson

from restow.kinds.types import load_types
from restow.machinery import codec, field_errors, protobuf, status
from restow.machinery.typed_json import check
from restow.resources.store import DeleteWish, Written
from restow.serving.answers import respond, respond_object
from restow.serving.context import Context
from restow.serving.forms import object_in_form
from restow.serving.handlers.bodies import PROTOBUF, needs_thread
from restow.serving.handlers.listing import list_answer, read_wish
from restow.serving.handlers.reading import resource_of
from restow.serving.handlers.server import Server
from restow.serving.listener.response import Answer, Promise, Response, Shielded
from restow.serving.parameters import invalid_options, is_dry_run
from restow.serving.selection import Selection

DELETES_AT_ONCE: Final = 32
CONVERTED_AT_ONCE: Final = 480
"""Objects that are converted, if need be, and then deleted."""
_POLICIES: Final = ("Orphan", "Background", "Foreground")
_UNDELETABLE: Final = frozenset({"default", "kube-system", "kube-public"})


def delete(server: Server, context: Context) -> Promise:
    """DELETE of an object."""
    return Shielded(_delete(server, context))


async def _delete(server: Server, context: Context) -> Response:
    resource, info = resource_of(context), context.info
    wish = await _wishes(server, context)
    if resource.kind.plural == "namespaces" and not resource.group and info.name in _UNDELETABLE:
        raise status.forbidden(
            "this namespace may not be deleted",
            resource=resource.kind.group_resource,
            name=info.name,
        )
    path = resource.path_of(info.namespace, info.name)
    asked = server.admission.asked(context, "DELETE")
    review = None if asked is None else asked.review_delete
    written = await server.store.delete(resource, info.version, path, wish, review=review)
    if not written.removed or resource.kind.returns_deleted:
        body = written.body
        if context.form.as_kind:
            body = object_in_form(server, context, body)
        return respond(context, 200, body)
    uid = orjson.loads(written.body)["metadata"].get("uid", "")
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


def delete_collection(server: Server, context: Context) -> Promise:
    """DELETE of a collection."""
    return Shielded(_delete_collection(server, context))


async def _delete_collection(server: Server, context: Context) -> Answer:
    resource, info = resource_of(context), context.info
    wish = await _wishes(server, context)
    selection = Selection(resource, info)
    limit = read_wish(server, context, selection).limit
    cache = await server.store.read(resource)
    page = cache.select(selection.prefix)
    entries = page.entries
    if selection:
        # Labels and fields are those that the client would see.
        entries = await server.store.in_version(
            resource, entries, resource.api_version(info.version)
        )
    chosen = [
        (path, entry)
        for path, entry, seen in zip(page.keys, page.entries, entries, strict=True)
        if not selection or selection.matches(path, seen)
    ]
    if limit:
        chosen = chosen[:limit]
    deleted: list[bytes] = []
    for first in range(0, len(chosen), CONVERTED_AT_ONCE):
        some = chosen[first : first + CONVERTED_AT_ONCE]
        # Each is deleted on its own, but whoever converts them is asked once.
        await server.store.in_version(
            resource, [entry for _, entry in some], resource.api_version(info.version)
        )
        deleted += await _delete_all(server, context, [path for path, _ in some], wish)
    return list_answer(server, context, deleted, {"resourceVersion": str(server.store.position)})


async def _delete_all(
    server: Server, context: Context, paths: list[str], wish: DeleteWish
) -> list[bytes]:
    """Delete objects, some at a time; what they were at last."""
    resource, info = resource_of(context), context.info
    asked = server.admission.asked(context, "DELETE")
    review = None if asked is None else asked.review_delete
    deleted: list[bytes] = []
    for first in range(0, len(paths), DELETES_AT_ONCE):
        outcomes = await asyncio.gather(
            *(
                server.store.delete(resource, info.version, path, wish, review=review)
                for path in paths[first : first + DELETES_AT_ONCE]
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, Written):
                deleted.append(outcome.body)
            elif not isinstance(outcome, status.NotFound):  # then someone else was faster
                raise outcome
    return deleted


async def _wishes(server: Server, context: Context) -> DeleteWish:
    if needs_thread(context):
        wish = await asyncio.to_thread(read_wishes, context)
    else:
        wish = read_wishes(context)
    if wish.policy and not server.collects_dependents:
        return replace(wish, policy="Background")  # nobody would ever take the finalizer out
    return wish


def read_wishes(context: Context) -> DeleteWish:
    """Options from the body or, if there is none, from the query."""
    options = read_options(context)
    policy = options.get("propagationPolicy") or ""
    orphan = options.get("orphanDependents")
    if policy and policy not in _POLICIES:
        cause = field_errors.not_supported("propagationPolicy", policy, _POLICIES)
        raise invalid_options(context.info, [cause])
    if policy and orphan is not None:
        cause = field_errors.invalid(
            "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot both"
        )
        raise invalid_options(context.info, [cause])
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = options.get("preconditions") or {}
    dry_run = options.get("dryRun") or []
    if any(each != "All" for each in dry_run):
        cause = field_errors.not_supported("dryRun", dry_run, ["All"])
        raise invalid_options(context.info, [cause])
    return DeleteWish(
        policy=policy,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry_run) or is_dry_run(context.info),
    )


def read_options(context: Context) -> dict[str, Any]:
    """What a client says about a delete, in the body or in the query. Raises 400."""
    body, info = context.request.body, context.info
    if not body:
        options: dict[str, Any] = {}
        if policy := info.parameter("propagationPolicy"):
            options["propagationPolicy"] = policy
        if (seconds := info.number("gracePeriodSeconds")) is not None:
            options["gracePeriodSeconds"] = seconds
        if "orphanDependents" in info.query:
            options["orphanDependents"] = info.flag("orphanDependents")
        return options
    struct = load_types().of_kind("", "v1", "DeleteOptions")
    assert struct is not None
    content_type = context.request.headers.get("content-type") or ""
    if codec.media_type_name(content_type) == PROTOBUF:
        return protobuf.decode(struct, protobuf.read_envelope(body).raw)
    value = codec.decode(body, content_type).value
    kind = value.get("kind")
    if kind and kind != "DeleteOptions":
        raise status.bad_request(f"{str(kind)[:128]} cannot be handled as DeleteOptions")
    return check(struct, value).value
