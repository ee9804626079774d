"""What admission and validation would say to a migration, asked without writing anything.

The same patches as those of a migration, with `dryRun=All`. Objects that would be refused are
named: rules become stricter while old objects stay stored, and webhooks go away. Whether an object
is stored in an old version cannot be seen this way.

A webhook that says it has side effects makes the server refuse to ask it. What it would say of the
object is not known then, which is neither good nor bad.

Not here: writing anything, and what is shown to a person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from restow.aio import Runtime
from restow.client import ApiClient, ApiResource
from restow.migration.migrator.passes import ObjectFailure, PageDone
from restow.migration.migrator.patch_rewrite import PatchOptions, PatchRewrite
from restow.migration.migrator.write_errors import NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunDone:
    """What a whole dry run has found."""

    scanned: int = 0
    accepted: int = 0
    """Would be rewritten, or are as they should be."""
    refused: int = 0
    unknown: int = 0
    """Nobody can tell without a real write."""
    settled: int = 0
    """Changed meanwhile and then accepted, or deleted."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing speaks against the migration."""
        return not self.refused and not self.unknown


async def dry_run(
    client: ApiClient,
    resource: ApiResource,
    *,
    runtime: Runtime,
    options: PatchOptions,
    on_failure: Callable[[ObjectFailure], None] | None = None,
    on_page: Callable[[PageDone], None] | None = None,
) -> DryRunDone:
    """Ask for every object of a resource; nothing is changed.

    `on_failure` hears of each object that would be refused, and of those that are unknown, with
    the reason `DryRunUnsupported`. Raises what `Pages.page` raises, but for `Lost`.
    """
    pages = PatchRewrite(client, resource, runtime=runtime, options=options, is_dry_run=True)
    done, token = DryRunDone(), ""
    while True:
        page = await pages.page(token)
        done = _with_page(done, page)
        if on_failure is not None:
            for failure in page.failures:
                on_failure(failure)
        if on_page is not None:
            on_page(page)
        token = page.token
        if not token:
            return done


def _with_page(done: DryRunDone, page: PageDone) -> DryRunDone:
    unknown = sum(failure.reason == NOT_ASKED for failure in page.failures)
    return replace(
        done,
        scanned=done.scanned + page.scanned,
        accepted=done.accepted + page.rewritten + page.unchanged,
        refused=done.refused + page.failed - unknown,
        unknown=done.unknown + unknown,
        settled=done.settled + page.settled,
    )
