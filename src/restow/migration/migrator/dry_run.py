"""Dry run: checks whether admission and validation would accept a migration. Writes nothing.

It sends the patches of a migration with `dryRun=All`, and names the objects that would be rejected:
validation rules become stricter while old objects stay stored, and webhooks disappear. It does not
show whether an object is stored in an old version.

For a webhook with side effects the server rejects a dry run. Whether the webhook would accept the
object is unknown then, which counts neither as accepted nor as rejected.

Not here: writing anything, and the output for people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from restow.aio import Runtime
from restow.client import ApiClient, ApiResource
from restow.migration.migrator.passes import ObjectFailure, PageDone
from restow.migration.migrator.patch_rewrite import PatchOptions, PatchRewrite
from restow.migration.migrator.write_errors import DRY_RUN_UNSUPPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunDone:
    """The result of a whole dry run."""

    scanned: int = 0
    accepted: int = 0
    """Would be rewritten, or are in the target version already."""
    refused: int = 0
    unknown: int = 0
    """Objects for which only a real write shows the result."""
    settled: int = 0
    """Changed meanwhile and then accepted, or deleted."""

    @property
    def is_clean(self) -> bool:
        """Whether every object would be accepted."""
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
    """Send a dry-run patch for every object of a resource; nothing is changed.

    `on_failure` is called with each object that would be rejected, and with those that are unknown,
    with the reason `DryRunUnsupported`. Raises the errors of `Pages.page`, except `AgreementLost`.
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
    unknown = sum(failure.reason == DRY_RUN_UNSUPPORTED for failure in page.failures)
    return replace(
        done,
        scanned=done.scanned + page.scanned,
        accepted=done.accepted + page.rewritten + page.unchanged,
        refused=done.refused + page.failed - unknown,
        unknown=done.unknown + unknown,
        settled=done.settled + page.settled,
    )
