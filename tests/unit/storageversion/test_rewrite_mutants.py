"""Mutants, each without one guard of a rewrite, are detected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from restow.apimachinery.status_error import StatusError
from restow.registry.committer import FenceMoved
from restow.registry.long_work import WorkRunner, in_thread
from restow.registry.store import ResourceStore
from restow.storage.interface import Guard, RevisionIs, ValueIs
from restow.storageversion.rewrite_page import PageWork, StoredValue
from restow.storageversion.rewrite_plan import RewritePlan
from tests.support.storageversion_audit import PromiseBroken
from tests.unit.storageversion.rewrite_checks import (
    check_concurrent,
    check_conflict,
    check_failures,
    check_fence,
    check_selection,
)
from tests.unit.storageversion.rewrite_world import V2, Rewriting, fill, rewriting


def _settled_by_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def current(_self: object, _plan: object, _stopped: object) -> None:
        return None

    monkeypatch.setattr(PageWork, "_current", current)


def _encodes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rewrite_anyhow(store: ResourceStore, plan: RewritePlan) -> None:
        while True:
            try:
                await store._committer.commit(plan, WorkRunner(in_thread, is_long=False))
            except FenceMoved:
                await store._policy.refresh(plan.resource)
            else:
                return

    monkeypatch.setattr(ResourceStore, "rewrite", rewrite_anyhow)


def _skips_equal_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PageWork._plan

    async def plan_changes(self: PageWork, found: StoredValue) -> RewritePlan | None:
        made = await plan(self, found)
        if made is not None:
            old, new = orjson.loads(found.item.value), orjson.loads(made._value)
            if {**old, "apiVersion": ""} == {**new, "apiVersion": ""}:
                return None
        return made

    monkeypatch.setattr(PageWork, "_plan", plan_changes)


def _hides_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageWork, "_fail", lambda *_: None)


async def _check_pass(it: Rewriting) -> None:
    await fill(it.world, 10)
    await it.page()
    assert await it.versions() == {V2: 10}


async def _check_update_in_between(it: Rewriting) -> None:
    await check_concurrent(it, 3)


@pytest.mark.parametrize(
    ("mutate", "check"),
    [
        (_settled_by_conflict, check_conflict),
        (_encodes_again, check_fence),
        (_skips_equal_objects, _check_pass),
        (_hides_failures, check_failures),
    ],
)
async def test_mutants_are_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Rewriting], Awaitable[None]],
) -> None:
    """Each naive variant fails its test."""
    async with rewriting(tmp_path) as it:
        mutate(monkeypatch)
        with pytest.raises((AssertionError, StatusError, pytest.fail.Exception)):
            await check(it)
        it.world.storage.broken.clear()


@pytest.mark.parametrize(
    ("guard", "check", "options"),
    [
        (RevisionIs, check_conflict, {}),
        (RevisionIs, _check_update_in_between, {}),
        (ValueIs, check_fence, {}),
        (ValueIs, check_selection, {"mode": "strict"}),
    ],
)
async def test_every_guard_is_needed(
    tmp_path: Path,
    guard: type[Guard],
    check: Callable[[Rewriting], Awaitable[None]],
    options: dict[str, Any],
) -> None:
    """Without the object's revision updates are lost; without the fence the audit fails."""
    async with rewriting(tmp_path, **options) as it:
        it.line.drop = guard
        with pytest.raises((AssertionError, PromiseBroken, pytest.fail.Exception)):
            await check(it)
        it.world.storage.broken.clear()
