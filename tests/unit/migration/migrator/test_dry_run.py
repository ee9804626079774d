"""Dry runs against a real server: which objects would be rejected; nothing is written."""

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


class AdmissionRules:
    """Rejects one object, and fails on others because of the dry run."""

    def __init__(self) -> None:
        self.dry_runs: list[bool] = []

    def concerns(self, _write: WriteOf) -> bool:
        return True

    def review(self, attributes: Attributes) -> None:
        self.dry_runs.append(attributes.dry_run)
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


async def test_objects_that_would_be_rejected() -> None:
    """Each rejected object is named with the message; objects with an unknown result are
    separate."""
    rules = AdmissionRules()
    async with running(25, admission=[rules]) as rig:
        rules.dry_runs.clear()
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
    assert len(rules.dry_runs) == 25
    assert all(rules.dry_runs)


async def test_a_clean_dry_run() -> None:
    """All objects would be accepted; an object deleted meanwhile is not a failure."""
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


async def test_an_authentication_error_ends_it() -> None:
    """An authentication error ends the dry run and is not attributed to an object."""
    async with running(3) as rig:

        async def fault(request: ClientRequest) -> StatusError | None:
            return status.unauthorized() if request.method == "PATCH" else None

        rig.transport.fault = fault
        with pytest.raises(Unauthorized):
            await run(rig)
