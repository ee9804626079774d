"""Mutants of the migrator, and of the pages that servers rewrite for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import orjson

from restow.apimachinery import status
from restow.apiserver import build_registry
from restow.endpoints.handlers import rewrite
from restow.migration.migrator import agreement as migrator_agreement
from restow.migration.migrator import engine, stored_versions
from restow.migration.migrator.migration_watch import Followed
from restow.migration.trigger import storage_version_watch as trigger_following
from restow.storage.interface import (
    Absent,
    Key,
    Present,
)
from restow.storageversion.rewrite import Rewriter, Standing
from restow.storageversion.rewrite_page import PageWork
from restow.storageversion.rewrite_plan import Aborted, RewritePlan
from tests.support.sim.mutants.fence import no_fence
from tests.support.sim.mutants.mutant import Mutant, Patch
from tests.support.sim.mutants.trigger import does_not_cancel, narrows_blindly, trusts_the_target

# Modules do not re-export their imports; here those are replaced where they are used.
_engine: Any = engine
_stored_versions: Any = stored_versions
_trigger_following: Any = trigger_following


def _no_epoch(patch: Patch) -> None:
    """The agreement at the start of a migration is not compared with the current one."""

    async def standing(_self: Rewriter, _resource: Any) -> Standing:
        return Standing(0, None, "")

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    async def for_ever(self: Any) -> None:
        await self._client.runtime.clock.sleep(1e9)

    page = engine._Run._do_page

    async def do_page(self: Any) -> Any:
        self._moment = ""
        return await page(self)

    def check(self: Rewriter, resource: Any, target: Any, _standing: Any, _epoch: Any) -> None:
        if self.target(resource) != target.version:
            raise Aborted(f"this server does not write {target.version}")

    read = rewrite.read_options
    patch(rewrite, "read_options", lambda context: replace(read(context), epoch=None))
    patch(engine._Run, "_do_page", do_page)
    patch(Rewriter, "_check", check)
    patch(Rewriter, "_read_standing", standing)
    patch(Rewriter, "_confirm", nothing)
    patch(migrator_agreement.Reported, "confirm", nothing)
    patch(migrator_agreement.Reported, "follow", for_ever)
    patch(migrator_agreement, "_is_moved", lambda *_: False)
    trusts_the_target(patch)
    narrows_blindly(patch)
    does_not_cancel(patch)


def _skips_what_reads_the_same(patch: Patch) -> None:
    """An object that would not change is not written."""

    async def plan(*_: Any) -> None:
        return None

    patch(PageWork, "_plan", plan)


def _rewrites_without_revision(patch: Patch) -> None:
    made = RewritePlan.__init__

    def init(self: RewritePlan, resource: Any, item: Any, target: Any, value: bytes) -> None:
        made(self, resource, item, target, value)
        self.guard = Present(item.key)  # type: ignore[assignment]

    patch(RewritePlan, "__init__", init)


def _rewrites_the_deleted(patch: Patch) -> None:
    made = RewritePlan.__init__

    def init(self: RewritePlan, resource: Any, item: Any, target: Any, value: bytes) -> None:
        made(self, resource, item, target, value)
        self.guard = Absent(Key("/restow/nothing"))  # type: ignore[assignment]

    patch(RewritePlan, "__init__", init)


def _conflict_is_success(patch: Patch) -> None:
    """A changed object counts as migrated, and writes are not fenced."""

    async def current(*_: Any) -> None:
        return None

    patch(PageWork, "_current", current)
    no_fence(patch)


def _ignores_agreement(patch: Patch) -> None:
    """A migration starts without agreement: to the version of one server."""
    read = _trigger_following.reading_of

    def reading_of(*args: Any, **options: Any) -> Any:
        found = read(*args, **options)
        if found.common or not found.written:
            return found
        return replace(found, common=min(found.written))

    patch(trigger_following, "reading_of", reading_of)
    patch(migrator_agreement, "reading_of", reading_of)
    _no_epoch(patch)


def _deletion_does_not_stop(patch: Patch) -> None:
    """The deletion of a migration is ignored."""
    found: dict[str, Any] = {}
    find = rewrite._find_migration
    read = Followed.read

    async def find_migration(server: Any, context: Any) -> Any:
        name = context.info.name
        try:
            found[name] = await find(server, context)
        except status.NotFound:
            if name not in found:
                raise
        return found[name]

    async def reading(self: Followed) -> Any:
        try:
            return await read(self)
        except Exception as error:
            if type(error).__name__ != "MigrationDeleted":
                raise
            return self.latest

    async def follow(self: Followed) -> None:
        await self._client.runtime.clock.sleep(1e9)

    async def write(*_: Any, **__: Any) -> None:
        return None

    patch(rewrite, "_find_migration", find_migration)
    patch(Followed, "read", reading)
    patch(Followed, "follow", follow)
    for name in ("save", "progress", "running", "begin"):
        patch(_engine.MigrationWriter, name, write)


def _trims_whatever_is_stored(patch: Patch) -> None:
    """storedVersions of a CRD is trimmed to its storage version, verified or not; and servers do
    not keep what they write in the list."""
    trim = stored_versions.trim

    async def trimming(client: Any, noted: Any) -> str:
        why_not = ""
        for _ in range(_stored_versions.ATTEMPTS_MAX):
            value = await client.get(_stored_versions.DEFINITIONS, noted.name)
            why_not = await trim(client, stored_versions._read(value))
            if not why_not:
                break
        return why_not

    patch(build_registry, "_keep_written_versions", lambda *_: None)
    patch(engine, "trim", trimming)
    patch(engine._Run, "_is_defined_as_noted", _true)


async def _true(*_: Any) -> bool:
    return True


def _resumes_anywhere(patch: Patch) -> None:
    """A continue token is accepted for every migration, and one pass is proof enough."""
    read = _engine.Position.of_text.__func__

    def of_text(cls: Any, text: str, purpose: Any) -> Any:
        value = orjson.loads(text) if text else {}
        said = replace(
            purpose,
            request_uid=value.get("uid", purpose.request_uid),
            target=value.get("target", purpose.target),
            mark=value.get("mark", purpose.mark),
        )
        return read(cls, text, said)

    async def work(self: Any, request: Any) -> Any:
        self._resume(_engine.marks_of(request))
        if self._writer is not None:
            await self._writer.begin(self._position, self._purpose())
            await self._writer.running(self._progress, "started")
        await self._do_pass(resumed=True)
        return await self._prove()

    patch(_engine.Position, "of_text", classmethod(of_text))
    patch(engine._Run, "_work", work)
    _no_epoch(patch)


MUTANTS: Final = (
    Mutant("no-epoch", "M1 M2", "epochs are not compared", _no_epoch),
    Mutant("skips-what-reads-the-same", "M8", "a no-op is not written", _skips_what_reads_the_same),
    Mutant("rewrite-without-revision", "M9", "a rewrite undoes updates", _rewrites_without_revision),
    Mutant("rewrites-the-deleted", "M9", "a rewrite restores deleted objects", _rewrites_the_deleted),
    Mutant("conflict-is-success", "M10", "a changed object counts as migrated", _conflict_is_success),
    Mutant("ignores-agreement", "M1 M5", "migrates while servers differ", _ignores_agreement),
    Mutant("deletion-does-not-stop", "M16", "a deleted migration continues", _deletion_does_not_stop),
    Mutant("trims-blindly", "M3", "storedVersions trimmed without verification", _trims_whatever_is_stored),
    Mutant("resumes-anywhere", "M11", "any token is accepted, one pass is proof", _resumes_anywhere),
)  # fmt: skip
