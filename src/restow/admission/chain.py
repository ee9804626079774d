"""All plug-ins of a server, asked in turn: first those that change an object, then the last word.

    for each write    which plug-ins does it concern      -> none: it goes the short way
    mutate            each in order, on what the one before has made of the object
    review            each in order, on the object as it would be stored

Which plug-ins a write concerns is remembered for all that are alike, so a write that concerns
nobody costs one look. Nobody is given an old object that somebody else was given before: what one
plug-in does to its copy is not seen by the next, nor stored.

Not here: any plug-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import orjson

from restow.admission.review import (
    Admission,
    AtOnce,
    Attributes,
    Mutation,
    Operation,
    WriteOf,
    renamed,
)
from restow.apimachinery import status
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.status_error import StatusError
from restow.registry.resource import Object, Resource
from restow.registry.scales import scale_of_object, with_replicas
from restow.registry.store import Check
from restow.request.bodies import complete
from restow.request.context import Context

KINDS_OF_WRITES_MAX: Final = 10_000
"""Of which it is remembered whom they concern."""

_Known = tuple[tuple[Mutation, ...], tuple[Admission, ...]] | None


class Chain:
    """The plug-ins of one server."""

    __slots__ = ("_admissions", "_at_once", "_known", "_mutations")

    def __init__(
        self,
        mutations: Sequence[Mutation] = (),
        admissions: Sequence[Admission] = (),
        *,
        at_once: Sequence[AtOnce] = (),
    ) -> None:
        """`at_once` are asked about all that is created and updated, by others than masters."""
        self._at_once = tuple(at_once)
        self._mutations = tuple(mutations)
        self._admissions = tuple(admissions)
        self._known: dict[tuple[str, str, str, str, str], _Known] = {}

    def asked(self, context: Context, operation: Operation) -> Asked | None:
        """Who is asked about the writes of one request; None when it concerns nobody."""
        info = context.info
        key = (operation, info.resource, info.group, info.version, info.subresource)
        try:
            known = self._known[key]
        except KeyError:
            known = self._find(key, context, operation)
        return None if known is None else Asked(context, operation, *known)

    def check_of(self, context: Context) -> Check | None:
        """What the store asks about each object of a request at once; None: nothing."""
        if context.user.is_master or not self._at_once:
            return None
        return partial(self._check, context)

    def _check(self, context: Context, obj: Object, old: Object | None) -> None:
        for each in self._at_once:
            each.check(context, obj, old)

    def forget(self) -> None:
        """Other writes may concern plug-ins than before."""
        self._known.clear()

    def _find(
        self, key: tuple[str, str, str, str, str], context: Context, operation: Operation
    ) -> _Known:
        assert context.resource is not None
        info = context.info
        write = WriteOf(operation, context.resource, info.version, info.subresource)
        mutations = tuple(each for each in self._mutations if each.concerns(write))
        admissions = tuple(each for each in self._admissions if each.concerns(write))
        if len(self._known) >= KINDS_OF_WRITES_MAX:
            self._known.clear()
        found = self._known[key] = (mutations, admissions) if mutations or admissions else None
        return found


class Asked:
    """The plug-ins that one request concerns. `mutate` and `review` are for the store."""

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

    async def mutate(self, obj: Object, old: Object | None, /, *, is_dry_run: bool) -> Object:
        """The object to write in the place of this one: checked and defaulted like a body."""
        for plugin in self._mutations:
            attributes = self._attributes(obj, _copy(old), is_dry_run=is_dry_run)
            answer = await plugin.mutate(attributes)
            if answer is not None:
                obj = self._taken_over(obj, answer)
        return obj

    async def review_delete(
        self, _obj: Object | None, old: Object | None, /, *, is_dry_run: bool
    ) -> None:
        """A delete has no object to change: who would change one is asked, and may refuse."""
        for plugin in self._mutations:
            attributes = self._attributes(None, _copy(old), is_dry_run=is_dry_run)
            if await plugin.mutate(attributes) is not None:
                raise status.internal(
                    "an admission plug-in attempted to modify the object, which is not supported"
                    " for this operation"
                )
        await self.review(None, old, is_dry_run=is_dry_run)

    async def review(self, obj: Object | None, old: Object | None, /, *, is_dry_run: bool) -> None:
        """Raises what the first plug-in raises that does not want it."""
        for plugin in self._admissions:
            answer = plugin.review(self._attributes(obj, _copy(old), is_dry_run=is_dry_run))
            if answer is not None:
                await answer

    def _taken_over(self, obj: Object, answer: Object) -> Object:
        """What a plug-in wants, as the object that the store is given."""
        context, resource = self._context, self._resource
        if context.info.subresource == "scale":
            spec = answer.get("spec")
            replicas = (spec.get("replicas") or 0) if isinstance(spec, dict) else None
            if type(replicas) is not int:
                raise status.internal("an admission plug-in made spec.replicas no whole number")
            return with_replicas(resource, context.info.version, obj, replicas)
        if path := renamed(obj, answer):
            raise status.internal(f"an admission plug-in attempted to change {path}")
        part = resource.subresource(context.info.version, context.info.subresource)
        if part is not None and part.kind and self._operation == "CREATE":
            return {**answer, "metadata": dict(answer.get("metadata") or {})}
        try:
            return complete(context, resource, answer, (), reports=False)
        except (StatusError, MachineryError) as error:
            # The client is not to blame: it has sent something else.
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
