"""The admission plug-ins of a server, called in order: first mutating, then validating plug-ins.

    for each write    find the plug-ins that handle it     -> none: admission is skipped
    mutate            each in order, on the object as the previous one returned it
    review            each in order, on the object as it would be stored

The plug-ins for a kind of write are cached by operation, resource, version and subresource, so a
write that no plug-in handles costs one dictionary lookup. Each plug-in gets its own copy of the old
object, so its changes to that copy are neither visible to the next plug-in nor stored.

Not here: any plug-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import orjson

from restow.admission.review import (
    Admission,
    Attributes,
    Mutation,
    ObjectCheck,
    Operation,
    WriteOf,
    renamed,
)
from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status_error import StatusError
from restow.registry.long_work import ON_LOOP, WorkRunner
from restow.registry.resource import Object, Resource
from restow.registry.scales import scale_of_object, with_replicas
from restow.registry.store import Check
from restow.request.bodies import complete
from restow.request.context import Context

KINDS_OF_WRITES_MAX: Final = 10_000
"""Maximum number of cached kinds of writes."""

_Plugins = tuple[tuple[Mutation, ...], tuple[Admission, ...]] | None


class Chain:
    """The admission plug-ins of one server."""

    __slots__ = ("_admissions", "_mutations", "_object_checks", "_plugins_by_write")

    def __init__(
        self,
        mutations: Sequence[Mutation] = (),
        admissions: Sequence[Admission] = (),
        *,
        object_checks: Sequence[ObjectCheck] = (),
    ) -> None:
        """`object_checks` run for each object that is created or updated, except for users in
        `system:masters`."""
        self._object_checks = tuple(object_checks)
        self._mutations = tuple(mutations)
        self._admissions = tuple(admissions)
        self._plugins_by_write: dict[tuple[str, str, str, str, str], _Plugins] = {}

    def for_request(self, context: Context, operation: Operation) -> RequestAdmission | None:
        """Return the plug-ins that handle the writes of one request, or None if there are none."""
        info = context.info
        key = (operation, info.resource, info.group, info.version, info.subresource)
        try:
            plugins = self._plugins_by_write[key]
        except KeyError:
            plugins = self._find(key, context, operation)
        return None if plugins is None else RequestAdmission(context, operation, *plugins)

    def check_of(self, context: Context) -> Check | None:
        """Return the synchronous check of each object of a request, or None if there is none."""
        if context.user.is_master or not self._object_checks:
            return None
        return partial(self._check, context)

    def _check(self, context: Context, obj: Object, old: Object | None) -> None:
        for each in self._object_checks:
            each.check(context, obj, old)

    def invalidate(self) -> None:
        """Clear the cache of which plug-ins handle which writes."""
        self._plugins_by_write.clear()

    def _find(
        self, key: tuple[str, str, str, str, str], context: Context, operation: Operation
    ) -> _Plugins:
        assert context.resource is not None
        info = context.info
        write = WriteOf(operation, context.resource, info.version, info.subresource)
        mutations = tuple(each for each in self._mutations if each.concerns(write))
        admissions = tuple(each for each in self._admissions if each.concerns(write))
        if len(self._plugins_by_write) >= KINDS_OF_WRITES_MAX:
            self._plugins_by_write.clear()
        found = self._plugins_by_write[key] = (
            (mutations, admissions) if mutations or admissions else None
        )
        return found


class RequestAdmission:
    """The plug-ins that handle the writes of one request. The store calls `mutate` and `review`."""

    __slots__ = ("_admissions", "_context", "_mutations", "_operation")

    def __init__(
        self,
        context: Context,
        operation: Operation,
        mutations: tuple[Mutation, ...],
        admissions: tuple[Admission, ...],
    ) -> None:
        self._context = context
        self._operation = operation
        self._mutations = mutations
        self._admissions = admissions

    async def mutate(
        self,
        obj: Object,
        old: Object | None,
        /,
        *,
        is_dry_run: bool,
        runner: WorkRunner = ON_LOOP,
    ) -> Object:
        """Return the object to write, validated and defaulted like a request body."""
        for plugin in self._mutations:
            before = await runner.run(_copy, old)
            answer = await plugin.mutate(self._attributes(obj, before, is_dry_run=is_dry_run))
            if answer is not None:
                obj = await runner.run(self._validated, obj, answer)
        return obj

    async def review_delete(
        self,
        _obj: Object | None,
        old: Object | None,
        /,
        *,
        is_dry_run: bool,
        runner: WorkRunner = ON_LOOP,
    ) -> None:
        """Run all plug-ins for a delete. A delete has no object to change, so a mutating plug-in
        may only accept or refuse it."""
        for plugin in self._mutations:
            before = await runner.run(_copy, old)
            attributes = self._attributes(None, before, is_dry_run=is_dry_run)
            if await plugin.mutate(attributes) is not None:
                raise status.internal(
                    "an admission plug-in attempted to modify the object, which is not supported"
                    " for this operation"
                )
        await self.review(None, old, is_dry_run=is_dry_run, runner=runner)

    async def review(
        self,
        obj: Object | None,
        old: Object | None,
        /,
        *,
        is_dry_run: bool,
        runner: WorkRunner = ON_LOOP,
    ) -> None:
        """Raise the error of the first plug-in that refuses the write."""
        for plugin in self._admissions:
            before = await runner.run(_copy, old)
            answer = plugin.review(self._attributes(obj, before, is_dry_run=is_dry_run))
            if answer is not None:
                await answer

    def _validated(self, obj: Object, answer: Object) -> Object:
        """Validate and default the object that a plug-in returned."""
        context, resource = self._context, self._resource
        if context.info.subresource == "scale":
            spec = answer.get("spec")
            replicas = (spec.get("replicas") or 0) if isinstance(spec, dict) else None
            if type(replicas) is not int:
                raise status.internal(
                    "an admission plug-in set spec.replicas to a value that is not an integer"
                )
            return with_replicas(resource, context.info.version, obj, replicas)
        if path := renamed(obj, answer):
            raise status.internal(f"an admission plug-in attempted to change {path}")
        part = resource.subresource(context.info.version, context.info.subresource)
        if part is not None and part.kind and self._operation == "CREATE":
            return {**answer, "metadata": dict(answer.get("metadata") or {})}
        try:
            return complete(context, resource, answer, (), reports=False)
        except (StatusError, MachineryError) as error:
            # The client sent a valid object, so this is an internal error.
            raise status.internal(
                f"an admission plug-in made the object invalid: {error}"
            ) from error

    def _attributes(
        self, obj: Object | None, old: Object | None, *, is_dry_run: bool
    ) -> Attributes:
        context, resource = self._context, self._resource
        info, subject = context.info, old if obj is None else obj
        assert subject is not None
        name = subject["metadata"].get("name") or ""
        if info.subresource == "scale":
            shown = partial(scale_of_object, resource, info.version, may_lack_replicas=True)
            obj = None if obj is None else shown(obj)
            old = None if old is None else shown(old)
        return Attributes(
            operation=self._operation,
            resource=resource,
            version=info.version,
            subresource=info.subresource,
            namespace=info.namespace,
            name=name,
            obj=obj,
            old=old,
            user=context.user,
            dry_run=is_dry_run,
            context=context,
        )

    @property
    def _resource(self) -> Resource:
        assert self._context.resource is not None
        return self._context.resource


def _copy(old: Object | None) -> Object | None:
    copied: Object | None = None if old is None else orjson.loads(orjson.dumps(old))
    return copied
