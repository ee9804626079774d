"""Choice of the rewrite method: the server's own rewrite if it has one, otherwise patches.

Also the list of all failed objects: the status of a migration names only the first ones, and
another pass over all pages returns them all. It skips what is rewritten, and fails where the
migration failed.

Not here: the evaluation of a pass (`engine`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from restow.client import ApiClient, Object
from restow.migration.migration_objects import ref_of
from restow.migration.migrator.agreement import AgreementCheck
from restow.migration.migrator.jobs import Job
from restow.migration.migrator.options import EngineOptions
from restow.migration.migrator.passes import ObjectFailure, Pages
from restow.migration.migrator.patch_rewrite import PatchRewrite
from restow.migration.migrator.server_rewrite import ServerRewrite


def choose_method(
    client: ApiClient,
    job: Job,
    agreed: AgreementCheck,
    *,
    migration: Object,
    options: EngineOptions,
    in_flight: Callable[[int], None] | None = None,
) -> Pages:
    """Return the method for a job. `in_flight` is called with the number of concurrent patches."""
    if not job.can_rewrite:
        return PatchRewrite(
            client,
            job.resource,
            runtime=client.runtime,
            options=options.patch,
            in_flight=in_flight,
        )
    return ServerRewrite(
        client,
        ref_of(migration),
        job.resource,
        target_api_version=agreed.target_version,
        target_hash=agreed.target,
        epoch=agreed.epoch,
        options=options,
    )


async def failures_of(pages: Pages) -> AsyncIterator[ObjectFailure]:
    """Yield all objects that fail in one pass. Raises the errors of a page."""
    token = ""
    while True:
        done = await pages.page(token)
        for failure in done.failures:
            yield failure
        if not done.token:
            return
        token = done.token
