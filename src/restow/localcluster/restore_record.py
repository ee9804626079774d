"""After a restore: the releases that can read the store, and the one the cluster starts with.

    restow restore -> judge_backup -> DIR/restored.json -> restow up -> removed when it is ready

The raw values decide: a release can read a backup if it decodes the version of every stored value.
Values that could not be decrypted are only counted. Servers check the same again when they
register, so a wrong choice results in a failed start, not in damage.

Not here: writing the store (`restow.storage.restore`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from restow.aio import Runtime, read_regular_file
from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource
from restow.apis.names import LEASE_NAMESPACE, RELEASE_ANNOTATION
from restow.apiserver.cluster_keys import owner_of
from restow.apiserver.pki import Pki, write_secret
from restow.census import Census, KeyValueSource, open_source, take_census
from restow.census.tally import Opener
from restow.encryption.decryption import key_text
from restow.kinds.releases import DEFAULT_NAME, ReleaseError, shipped_releases
from restow.localcluster.errors import ClusterRefused
from restow.localcluster.layout import Layout
from restow.localcluster.release_files import digest_of, release_of, releases_in_use
from restow.localcluster.state import ClusterState
from restow.migration.preflight import target_of_release

LEASES: Final = f"/registry/leases/{LEASE_NAMESPACE}/"
CRDS: Final = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
RECORD_BYTES_MAX: Final = 64 * 1024
UNREADABLE_SHOWN_MAX: Final = 5


class RestoreRecord(msgspec.Struct, kw_only=True, frozen=True):
    """Written by `restow restore` for the next `restow up`."""

    release: str | None = None
    """The release to start all servers with; None: their own, or the one given by --release."""
    backup_revision: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """The releases that can read a backup."""

    running: tuple[str, ...]
    """Releases of the servers that ran when the backup was taken, from their leases."""
    readable: tuple[str, ...]
    """Releases that can read it, the preferred one first."""
    unreadable: dict[str, tuple[str, ...]]
    """For each other release, the values that it cannot read."""
    sealed: dict[str, int]
    """The number of values that were not decrypted, by encryption key; their versions are
    unknown."""

    @property
    def not_decrypted(self) -> int:
        return sum(self.sealed.values())

    @property
    def chosen(self) -> str | None:
        return self.readable[0] if self.readable else None


async def judge_backup(
    path: Path, layout: Layout | None, *, state: ClusterState | None, opener: Opener | None
) -> BackupReport:
    """Compare the raw values of a backup with the known releases.

    Raises StorageError. Known releases are those of the servers, of the last upgrade, the files in
    the data directory, and the shipped ones.
    """
    async with AsyncExitStack() as undo:
        source = await open_source(f"snapshot:{path}", Runtime.system())
        undo.push_async_callback(source.close)
        census = await take_census(source, opener=opener)
        custom = {key.removeprefix(CRDS) for key, _ in await _entries(source, CRDS)}
        running = await _running(source)
    readable, unreadable = [], {}
    for release in _candidates(layout, state, running):
        problems = tuple(_unreadable(census, release, custom))
        if problems:
            unreadable[release] = problems
        else:
            readable.append(release)
    return BackupReport(
        running=running,
        readable=tuple(readable),
        unreadable=unreadable,
        sealed=_sealed(census),
    )


def _sealed(census: Census) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in census.resources:
        for row in each.rows:
            if row.stored.form == "encrypted" and not row.stored.api_version:
                found[key_text(row.stored)] += row.objects
    return dict(sorted(found.items()))


def write_record(layout: Layout, record: RestoreRecord) -> None:
    """Write a record for the next start. Raises OSError."""
    write_secret(layout.restored, msgspec.json.encode(record) + b"\n")


def read_record(layout: Layout) -> RestoreRecord | None:
    """Read the record of a restore; None if there is none, or the cluster has been ready since.

    Raises ClusterRefused."""
    try:
        data = read_regular_file(layout.restored, bytes_max=RECORD_BYTES_MAX)
        return msgspec.json.decode(data, type=RestoreRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ClusterRefused(
            f"{layout.restored} cannot be read ({error}): remove it, and use --release"
        ) from error


def apply_record(state: ClusterState, release: str | None) -> ClusterState:
    """The state for a restored store: all servers get the release, and the upgrade is cleared."""
    servers = tuple(
        each if release is None else msgspec.structs.replace(each, release=release)
        for each in state.servers
    )
    return msgspec.structs.replace(state, servers=servers, upgrade=None)


async def check_keys(layout: Layout, pki: Pki | None) -> None:
    """Reject an embedded store of a cluster with other keys. Raises ClusterRefused.

    Without `pki` no keys exist, so new ones would differ.
    """
    if not layout.store.exists():
        return
    owner = await owner_of(f"sqlite:{layout.store}", Runtime.system())
    if not owner or (pki is not None and owner in (pki.fingerprint, pki.fingerprint_before)):
        return
    raise ClusterRefused(
        f"{layout.store} belongs to a cluster whose keys are not in {layout.pki}: copy the"
        " directory pki of that cluster there, with its modes (cp -a); servers need the same keys"
        " to use the store"
    )


def _candidates(
    layout: Layout | None, state: ClusterState | None, running: Sequence[str]
) -> Iterable[str]:
    """Releases to try: the one in use if it is the only one, those of the backup, then the rest."""
    in_use = releases_in_use(state) if state is not None else []
    origins = state.upgrade.origins if state is not None and state.upgrade is not None else ()
    known = [*in_use, *origins]
    if layout is not None and layout.releases.is_dir():
        files = sorted(str(each.absolute()) for each in layout.releases.iterdir())
        known += [each for each in files if digest_of(each) is not None]
    known += [DEFAULT_NAME, *shipped_releases()]
    first = in_use if len(in_use) == 1 else []
    then = [each for each in known if _name(each) in running]
    return dict.fromkeys((*first, *then, *known))


def _name(release: str) -> str:
    with suppress(ReleaseError):
        return release_of(release).name
    return ""


def _unreadable(census: Census, release: str, custom: set[str]) -> Iterable[str]:
    """The values that a release cannot read, for messages."""
    try:
        resources = target_of_release(release_of(release)).resources
    except ReleaseError as error:
        yield str(error)
        return
    for each in census.resources:
        resource = _resource(each.resource)
        if resource is None:
            continue
        known = resources.get(resource)
        for row in each.rows:
            version = row.stored.api_version
            if known is None and each.resource not in custom:
                yield f"{each.resource}: {row.objects:,} values, and no such resource"
            elif known is not None and version and version not in known.decodable:
                yield f"{each.resource}: {row.objects:,} values as {version}"


def _resource(name: str) -> GroupResource | None:
    with suppress(InvalidName):
        return None if name.startswith("/") else GroupResource.parse(name)
    return None


async def _running(source: KeyValueSource) -> tuple[str, ...]:
    """The releases in the identity leases."""
    names = set()
    for _, value in await _entries(source, LEASES):
        with suppress(orjson.JSONDecodeError, AttributeError):
            lease: dict[str, Any] = orjson.loads(value)
            names.add((lease["metadata"].get("annotations") or {}).get(RELEASE_ANNOTATION, ""))
    return tuple(sorted(filter(None, names)))


async def _entries(source: KeyValueSource, prefix: str) -> list[tuple[str, bytes]]:
    return [entry async for page in source.pages([prefix]) for entry in page]
