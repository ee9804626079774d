"""Which way pages are done: by the server's own rewrite where there is one, otherwise by patches.

Also what follows from it for names: a request names only the first objects that failed, and whoever
wants them all does the pages again. What was done is skipped then, and what failed fails again.

Not here: what a pass means (`engine`).
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


def choose_way(
    client: ApiClient,
    job: Job,
    agreed: AgreementCheck,
    *,
    request: Object,
    options: EngineOptions,
    in_flight: Callable[[int], None] | None = None,
) -> Pages:
    """`in_flight` hears how many objects are being patched."""
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
        ref_of(request),
        job.resource,
        target_api_version=agreed.target_version,
        target_hash=agreed.target,
        epoch=agreed.epoch,
        options=options,
    )


async def failures_of(pages: Pages) -> AsyncIterator[ObjectFailure]:
    """All that fail in one pass. Raises what a page raises."""
    token = ""
    while True:
        done = await pages.page(token)
        for failure in done.failures:
            yield failure
        if not done.token:
            return
        token = done.token
