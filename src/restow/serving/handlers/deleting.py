"""delete and deletecollection."""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.kinds.types import load_types
from restow.machinery import codec, field_errors, protobuf, status
from restow.machinery.names import GroupKind
from restow.machinery.typed_json import check
from restow.resources.store import DeleteWish
from restow.serving.answers import respond, respond_object
from restow.serving.context import Context
from restow.serving.handlers.bodies import PROTOBUF, is_dry_run
from restow.serving.handlers.listing import read_wish
from restow.serving.handlers.reading import resource_of
from restow.serving.handlers.server import Server
from restow.serving.listener.response import Promise, Response, Shielded
from restow.serving.selection import Selection

_POLICIES: Final = ("Orphan", "Background", "Foreground")
_UNDELETABLE: Final = frozenset({"default", "kube-system", "kube-public"})


def delete(server: Server, context: Context) -> Promise:
    """DELETE of an object."""
    return Shielded(_delete(server, context, read_wishes(context)))


async def _delete(server: Server, context: Context, wish: DeleteWish) -> Response:
    resource, info = resource_of(context), context.info
    if resource.kind.plural == "namespaces" and not resource.group and info.name in _UNDELETABLE:
        raise status.forbidden(
            "this namespace may not be deleted",
            resource=resource.kind.group_resource,
            name=info.name,
        )
    path = resource.path_of(info.namespace, info.name)
    written = await server.store.delete(resource, info.version, path, wish)
    if not written.removed or resource.kind.returns_deleted:
        return respond(context, 200, written.body)
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
    wish = read_wishes(context)
    return Shielded(_delete_collection(server, context, wish))


async def _delete_collection(server: Server, context: Context, wish: DeleteWish) -> Response:
    resource, info = resource_of(context), context.info
    selection = Selection(resource, info)
    limit = read_wish(server, context, selection).limit
    cache = await server.store.read(resource)
    page = cache.select(selection.prefix)
    chosen = [
        path
        for path, entry in zip(page.keys, page.entries, strict=True)
        if not selection or selection.matches(path, entry)
    ]
    deleted: list[bytes] = []
    for path in chosen[: limit or len(chosen)]:
        try:
            written = await server.store.delete(resource, info.version, path, wish)
        except status.NotFound:
            continue  # someone else was faster
        deleted.append(written.body)
    head = b'{"kind":%b,"apiVersion":%b,"metadata":{"resourceVersion":"%d"},"items":[' % (
        orjson.dumps(resource.kind.list_kind),
        orjson.dumps(resource.api_version(info.version)),
        server.store.position,
    )
    return respond(context, 200, b"".join((head, b",".join(deleted), b"]}")))


def read_wishes(context: Context) -> DeleteWish:
    """Options from the body or, if there is none, from the query."""
    options = _options(context)
    policy = options.get("propagationPolicy") or ""
    orphan = options.get("orphanDependents")
    if policy and policy not in _POLICIES:
        cause = field_errors.not_supported("propagationPolicy", policy, _POLICIES)
        raise status.invalid(GroupKind("meta.k8s.io", "DeleteOptions"), "", [cause])
    if policy and orphan is not None:
        cause = field_errors.invalid(
            "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot both"
        )
        raise status.invalid(GroupKind("meta.k8s.io", "DeleteOptions"), "", [cause])
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = options.get("preconditions") or {}
    dry_run = options.get("dryRun") or []
    if any(each != "All" for each in dry_run):
        cause = field_errors.not_supported("dryRun", dry_run, ["All"])
        raise status.invalid(GroupKind("meta.k8s.io", "DeleteOptions"), "", [cause])
    return DeleteWish(
        policy=policy,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry_run) or is_dry_run(context),
    )


def _options(context: Context) -> dict[str, Any]:
    body, info = context.request.body, context.info
    if not body:
        options: dict[str, Any] = {}
        if policy := info.parameter("propagationPolicy"):
            options["propagationPolicy"] = policy
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
