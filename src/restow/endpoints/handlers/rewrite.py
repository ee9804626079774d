"""rewrite: the subresource of a migration through which this server rewrites one page of objects.

    POST  {"limit": 500, "continue": "", "target": "apps/v1", "epoch": 3}   all fields are optional

The resource is that of the migration. The response has counts, failed objects and a continue token;
a client that reaches the end within one epoch has covered all objects. Nothing is kept between
calls: another server, or this one after a crash, continues with the same token.

When a pass from the first page to the last has found nothing to rewrite, the server that handles
the last page narrows the StorageState to the target, and responds with `"verified": true`. When an
object fails, it adds "Unknown" to the StorageState. See `restow.storageversion.verification`.

    404   the migration does not exist (any more)
    409   this server does not write the target, the servers do not agree on it, or the epoch
          of the agreement has changed: start again, if the migration is still needed
    422   fields with invalid values
    429   too many pages are in progress
    503   this server has just started, and does not serve all custom resources yet

Admission is not called: a rewrite changes only the version in which an object is encoded, and a
rejection would help no client. To check what admission would reject, send updates with `dryRun`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from restow.apimachinery import body_codec, field_errors, status
from restow.apimachinery.names import GroupKind
from restow.apimachinery.status_error import StatusCause
from restow.endpoints.continue_tokens import PageStart
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.httpserver.response import HttpResponse
from restow.registry.resource import Object, Resource
from restow.request.context import Context
from restow.request.parameters import is_dry_run
from restow.request.responses import respond_object
from restow.storageversion.rewrite import LIMIT_MAX, Rewriter
from restow.storageversion.rewrite_page import RewrittenPage
from restow.storageversion.rewrite_plan import Aborted

KIND: Final = "RewriteResult"
LIMIT_DEFAULT: Final = 500
CLEAN: Final = "clean"
"""Mark in a continue token, which is signed: no earlier page of the pass rewrote an object or
failed. The store's identity follows: pages of a store that was replaced since do not count."""
FAILED_SHOWN_MAX: Final = 100
TEXT_LENGTH_MAX: Final = 4096
BODY_BYTES_MAX: Final = 16 * 1024

_FIELDS: Final = frozenset(
    {"kind", "apiVersion", "metadata", "limit", "continue", "target", "epoch"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOptions:
    """The parsed body of a request."""

    limit: int = LIMIT_DEFAULT
    token: str = ""
    target: str = ""
    """Empty: the version that this server writes now."""
    epoch: int | None = None


class RewriteHandler:
    """The handler: call it with a server and a request."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter

    async def __call__(self, server: Server, context: Context) -> HttpResponse:
        self._rewriter.foreground.note_own()
        if is_dry_run(context.info):
            raise status.bad_request("rewrite does not support dryRun")
        return await self._rewrite(server, context, read_options(context))

    async def _rewrite(
        self, server: Server, context: Context, options: RewriteOptions
    ) -> HttpResponse:
        # Not shielded: a client that disconnects needs no more pages, and each object is atomic.
        migration = await _find_migration(server, context)
        resource = _find_resource(server, context, migration)
        target = options.target or self._rewriter.target(resource)
        bound_to = _bound_to(migration, resource, target)
        epoch, start, note = options.epoch, "", None
        if options.token:
            begun, start, note = server.tokens.read(options.token, bound_to=bound_to)
            if epoch is not None and epoch != begun:
                raise _conflict(context, f"the continue token is of epoch {begun}, not {epoch}")
            epoch = begun
        try:
            page = await self._rewriter.rewrite_page(
                resource, target_version=target, start_key=start, limit=options.limit, epoch=epoch
            )
            clean = f"{CLEAN} {page.store_id}"
            is_clean = page.is_clean and note in (None, clean)
            is_verified = await self._rewriter.conclude(
                resource,
                page,
                target_version=target,
                is_clean=is_clean,
                migration_uid=str(migration["metadata"].get("uid") or ""),
            )
        except Aborted as aborted:
            raise _conflict(context, str(aborted)) from aborted
        token = ""
        if page.next_key is not None:
            place = PageStart(page.epoch, page.next_key, clean if is_clean else "")
            token = server.tokens.make(place, bound_to=bound_to)
        result = _result(context, resource, target, page, token)
        return respond_object(context, 200, result | {"verified": is_verified})


def read_options(context: Context) -> RewriteOptions:
    """Parse the body. Raises 400, 415 or 422."""
    body: Object = {}
    if context.request.body:
        content_type = context.request.headers.get("content-type") or ""
        body = body_codec.decode(context.request.body, content_type, size_max=BODY_BYTES_MAX).value
    causes = [
        field_errors.forbidden(name[:TEXT_LENGTH_MAX], "unknown field")
        for name in body
        if name not in _FIELDS
    ]
    limit, epoch = body.get("limit"), body.get("epoch")
    if limit is not None and not (_is_number(limit) and 0 < limit <= LIMIT_MAX):
        why = f"must be an integer from 1 to {LIMIT_MAX}"
        causes.append(field_errors.invalid("limit", limit, why))
    if epoch is not None and not (_is_number(epoch) and epoch >= 0):
        causes.append(field_errors.invalid("epoch", epoch, "must be an integer"))
    token = _text(body, "continue", causes)
    target = _text(body, "target", causes)
    if causes:
        raise _invalid(context, causes)
    return RewriteOptions(
        limit=LIMIT_DEFAULT if limit is None else limit, token=token, target=target, epoch=epoch
    )


def _text(body: Object, name: str, causes: list[StatusCause]) -> str:
    found = body.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        causes.append(field_errors.type_invalid(name, found, "must be a string"))
        return ""
    if len(found) > TEXT_LENGTH_MAX:
        causes.append(field_errors.too_long(name, length_max=TEXT_LENGTH_MAX))
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


async def _find_migration(server: Server, context: Context) -> Object:
    """The current migration; one that is deleted or being deleted rewrites nothing."""
    kind, info = resource_of(context), context.info
    cache = await server.store.read(kind)
    path = kind.path_of(info.namespace, info.name)
    entry = cache.get(path)
    if entry is None:
        raise server.store.missing(kind, path, cache)
    migration = server.store.object_of(kind, entry, kind.api_version(info.version))
    if migration["metadata"].get("deletionTimestamp"):
        raise _conflict(context, "the migration is being deleted")
    return migration


def _find_resource(server: Server, context: Context, migration: Object) -> Resource:
    """The resource that the migration rewrites."""
    wanted = (migration.get("spec") or {}).get("resource") or {}
    group, plural = wanted.get("group") or "", wanted.get("resource") or ""
    hosted = next(
        (r for r in server.catalog if (r.group, r.plural) == (group, plural) and r.kind.persisted),
        None,
    )
    roots = {} if hosted is None else {r.root: r for r in server.catalog.persisted()}
    if hosted is None or hosted.root not in roots:
        server.check_whole()
        raise _invalid(context, [field_errors.not_found("spec.resource", f"{plural}.{group}")])
    return roots[hosted.root]


def _bound_to(migration: Object, resource: Resource, target: str) -> str:
    """The scope of a continue token: this migration and target. The token contains the epoch."""
    return f"rewrite\0{migration['metadata'].get('uid')}\0{resource.root}\0{target}"


def _result(
    context: Context, resource: Resource, target: str, page: RewrittenPage, token: str
) -> dict[str, Any]:
    info, kind = context.info, resource_of(context)
    failed = page.failed[:FAILED_SHOWN_MAX]
    return {
        "kind": KIND,
        "apiVersion": kind.api_version(info.version),
        "metadata": {"name": info.name},
        "resource": {"group": resource.group, "resource": resource.plural},
        "target": target,
        "continue": token,
        "scanned": page.scanned,
        "rewritten": page.rewritten,
        "skipped": page.skipped,
        "settled": page.settled,
        "failedCount": len(page.failed),
        "failed": [_failure(resource, key, reason) for key, reason in failed],
        "resourceVersion": str(page.revision),
        "epoch": page.epoch,
        "storageVersionUID": page.report_uid,
    }


def _failure(resource: Resource, key: str, reason: str) -> dict[str, str]:
    namespace, _, name = key.removeprefix(resource.root).rpartition("/")
    return {"namespace": namespace, "name": name, "reason": reason}


def _conflict(context: Context, why: str) -> status.StatusError:
    return status.conflict(resource_of(context).kind.group_resource, context.info.name, why=why)


def _invalid(context: Context, causes: list[StatusCause]) -> status.StatusError:
    kind = GroupKind(resource_of(context).group, KIND)
    return status.invalid(kind, context.info.name, causes)
