"""A dry run against a real server: who would be refused, and that nothing is written."""

from __future__ import annotations

import pytest

from restow.admission import Attributes, WriteOf
from restow.apimachinery import status
from restow.apimachinery.status import StatusError, Unauthorized
from restow.client.transport import ClientRequest
from restow.migration.migrator.dry_run import DryRunDone, dry_run
from restow.migration.migrator.passes import ObjectFailure, PageDone
from restow.migration.migrator.write_errors import DRY_RUN_UNSUPPORTED
from tests.unit.migration.migrator.patch_rig import OPTIONS, V1, Rig, running


class Rules:
    """Refuses some, and cannot be asked about others without a real write."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def concerns(self, _write: WriteOf) -> bool:
        return True

    def review(self, attributes: Attributes) -> None:
        self.asked.append(attributes.dry_run)
        if attributes.name == "w004":
            raise status.forbidden('admission webhook "rules" denied the request')
        if attributes.name in {"w001", "w020"}:
            raise status.bad_request('admission webhook "effects" does not support dry run')


async def run(rig: Rig) -> tuple[DryRunDone, list[ObjectFailure], list[PageDone]]:
    failures: list[ObjectFailure] = []
    pages: list[PageDone] = []
    done = await dry_run(
        rig.client,
        rig.resource,
        runtime=rig.runtime,
        options=OPTIONS,
        on_failure=failures.append,
        on_page=pages.append,
    )
    return done, failures, pages


async def test_who_would_be_refused() -> None:
    """Each is named, with what was said; what nobody can tell is told apart."""
    rules = Rules()
    async with running(25, admission=[rules]) as rig:
        rules.asked.clear()
        revision = await rig.storage.revision()
        done, failures, pages = await run(rig)
        assert await rig.storage.revision() == revision
        assert await rig.versions() == {V1: 25}
    assert done == DryRunDone(scanned=25, accepted=22, refused=1, unknown=2, settled=0)
    assert not done.is_clean
    assert {failure.name: failure.reason for failure in failures} == {
        "w001": DRY_RUN_UNSUPPORTED,
        "w004": "Forbidden",
        "w020": DRY_RUN_UNSUPPORTED,
    }
    assert [page.scanned for page in pages] == [10, 10, 5]
    assert len(rules.asked) == 25
    assert all(rules.asked)


async def test_nothing_speaks_against_it() -> None:
    """All would go well; an object that is gone meanwhile is no problem."""
    async with running(12) as rig:

        async def fault(request: ClientRequest) -> StatusError | None:
            is_gone = request.method == "PATCH" and "/w007?" in request.target
            return status.not_found(rig.resource.group_resource, "w007") if is_gone else None

        rig.transport.fault = fault
        done, failures, _ = await run(rig)
        assert all("dryRun=All" in each.target for each in rig.transport.of("PATCH"))
    assert done == DryRunDone(scanned=12, accepted=11, settled=1)
    assert done.is_clean
    assert failures == []


async def test_what_ends_it() -> None:
    """A server that does not let us in is no reason against any object."""
    async with running(3) as rig:

        async def fault(request: ClientRequest) -> StatusError | None:
            return status.unauthorized() if request.method == "PATCH" else None

        rig.transport.fault = fault
        with pytest.raises(Unauthorized):
            await run(rig)
