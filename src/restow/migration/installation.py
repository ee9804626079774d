"""Installation of the two CRDs of `migration.k8s.io` on a server without them: `--install`.

For each kind, one of:

    built in    the server has the kind without a CRD: nothing to do
    created     there was neither
    updated     a CRD, perhaps kube-storage-version-migrator's, was updated
    unchanged   it was up to date already

Nothing is ever deleted: deleting a CRD deletes all its objects. Repeated and concurrent runs are
harmless.

Not here: the content of the CRDs (`crds`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from restow.apimachinery.names import GroupVersion
from restow.apimachinery.status import AlreadyExists, Conflict, NotFound, StatusError
from restow.apis.migration_v1alpha1 import GROUP
from restow.apis.resources import DEFINITIONS as CRDS
from restow.client import ApiClient, ConnectionFailed, Object, WriteOptions, metadata_of
from restow.migration.crds import DEFINITIONS, VERSION, definition_of, upgraded

MIGRATION: Final = GroupVersion(GROUP, VERSION)
ATTEMPTS_MAX: Final = 5
ESTABLISHED_SECONDS_MAX: Final = 30.0
_POLL_SECONDS: Final = 0.2
_WRITE: Final = WriteOptions(field_manager="restow-install")


class InstallFailed(Exception):
    """The CRDs could not be installed. The message contains the remedy."""


class InstallOutcome(StrEnum):
    """The result for one kind."""

    BUILT_IN = "built in"
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Installed:
    """The result for one kind, or the result that a dry run predicts."""

    name: str
    """Name of the CRD: `storagestates.migration.k8s.io`."""
    outcome: InstallOutcome


async def missing_kinds(client: ApiClient) -> list[str]:
    """Return the names of the kinds that the server does not serve."""
    served = await _served(client)
    return [f"{plural}.{GROUP}" for plural in DEFINITIONS if plural not in served]


async def install(client: ApiClient, *, is_dry_run: bool = False) -> list[Installed]:
    """Install both CRDs and wait until the server serves them.

    A dry run sends the same writes with `dryRun=All`, and changes nothing.
    """
    served = await _served(client)
    has_definitions = await _has_definitions(client)
    done: list[Installed] = []
    for plural in DEFINITIONS:
        name = f"{plural}.{GROUP}"
        if has_definitions:
            outcome = await _apply(client, plural, served, is_dry_run=is_dry_run)
        elif plural in served:
            outcome = InstallOutcome.BUILT_IN
        else:
            raise InstallFailed(
                f"{client.server} serves neither {name} nor {CRDS.resource}.{CRDS.group}/v1, by"
                " which it could be added: custom resources need Kubernetes 1.16 or newer"
            )
        done.append(Installed(name, outcome))
    if not is_dry_run:
        for each in done:
            if each.outcome is not InstallOutcome.BUILT_IN:
                await _wait_established(client, each.name)
    return done


async def _apply(
    client: ApiClient, plural: str, served: frozenset[str], *, is_dry_run: bool
) -> InstallOutcome:
    name = f"{plural}.{GROUP}"
    options = WriteOptions(dry_run=is_dry_run, field_manager=_WRITE.field_manager)
    for _ in range(ATTEMPTS_MAX):
        try:
            existing = await client.get(CRDS, name)
        except NotFound:
            if plural in served:
                return InstallOutcome.BUILT_IN
            try:
                await client.create(CRDS, definition_of(plural), options=options)
            except AlreadyExists:
                continue
            return InstallOutcome.CREATED
        _check_usable(existing, name)
        wanted = upgraded(existing, plural)
        if wanted == existing:
            return InstallOutcome.UNCHANGED
        try:
            updated = await client.update(CRDS, wanted, options=options)
        except (Conflict, NotFound):
            continue
        # Defaulting by the server is no change.
        is_same = updated.get("spec") == existing.get("spec")
        return InstallOutcome.UNCHANGED if is_same else InstallOutcome.UPDATED
    raise InstallFailed(
        f"{name} was changed by other clients during {ATTEMPTS_MAX} updates; try again"
    )


def _check_usable(existing: Object, name: str) -> None:
    if metadata_of(existing).get("deletionTimestamp"):
        raise InstallFailed(f"{name} is being deleted; try again when it is gone")
    scope = (existing.get("spec") or {}).get("scope")
    if scope != "Cluster":
        raise InstallFailed(
            f"{name} has scope {scope}, but its objects are cluster-scoped: it is not the CRD of"
            " kube-storage-version-migrator, and restow does not change it"
        )


async def _served(client: ApiClient) -> frozenset[str]:
    """The resources of the group that the server serves, from a CRD or built in."""
    try:
        return frozenset(each.name for each in await client.resources(MIGRATION))
    except NotFound:
        return frozenset()


async def _has_definitions(client: ApiClient) -> bool:
    try:
        found = await client.resources(CRDS.group_version)
    except NotFound:
        return False
    return any(each.name == CRDS.resource for each in found)


async def _wait_established(client: ApiClient, name: str) -> None:
    clock = client.runtime.clock
    problem = ""
    try:
        async with clock.timeout(ESTABLISHED_SECONDS_MAX):
            while True:
                try:
                    problem = _why_not_established(await client.get(CRDS, name))
                    if not problem:
                        if name not in await missing_kinds(client):
                            return
                        problem = "it is not in discovery yet"
                except (ConnectionFailed, StatusError) as error:
                    problem = str(error)
                await clock.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise InstallFailed(
            f"{name} is not served after {ESTABLISHED_SECONDS_MAX:g} s: {problem}"
        ) from None


def _why_not_established(definition: Object) -> str:
    conditions = (definition.get("status") or {}).get("conditions") or []
    said = {each.get("type"): each for each in conditions if isinstance(each, dict)}
    refused = said.get("NamesAccepted", {})
    if refused.get("status") == "False":
        return f"its names are not accepted: {refused.get('message')}"
    if said.get("Established", {}).get("status") == "True":
        return ""
    return "the server has not established it yet"
