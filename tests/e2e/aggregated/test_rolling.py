"""Two releases of an aggregated server, one after another, and the migration that follows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from restow.coordination.raw_scan import stored_versions
from restow.machinery.names import GroupVersionKind
from restow.machinery.version_hash import storage_version_hash
from restow.runtime import Runtime
from restow.storage.opening import open_storage
from restow.testing.aggregated_process import AggregatedProcess
from restow.testing.controllers_process import ControllersProcess
from restow.testing.server_process import ServerProcess
from tests.e2e.aggregated.stage import (
    ask,
    entries,
    is_available,
    kinds_file,
    part,
    parts_path,
    until,
)

GROUP: Final = "rolling.example.com"
COUNT: Final = 8


def test_a_rolling_upgrade_migrates(main: ServerProcess, tmp_path: Path) -> None:
    """While both releases run nothing is agreed on; when the old one is gone, all objects are
    rewritten through the main server, and only then the old version counts as gone."""
    before, after = (kinds_file(tmp_path, each, group=GROUP) for each in ("v1", "v1beta1"))
    old = AggregatedProcess(tmp_path / "old", main=main, kinds=before, store=main.store)
    with old:
        until(lambda: is_available(main, group=GROUP))
        for number in range(COUNT):
            body = part(f"part-{number}", number, group=GROUP)
            assert ask(main, "POST", parts_path(group=GROUP), body)[0] == 201
        with old.sibling(tmp_path / "new", kinds=after):
            written = sorted(entries(main, group=GROUP).values())
            assert written == [f"{GROUP}/v1", f"{GROUP}/v1beta1"]
            assert persisted(main) == ["Unknown", hash_of("v1"), hash_of("v1beta1")]
            assert old.stop() == 0
            with ControllersProcess(tmp_path / "controllers", kubeconfig=main.kubeconfig):
                until(lambda: persisted(main) == [hash_of("v1beta1")])
            code, found = ask(main, "GET", parts_path(group=GROUP))
            assert code == 200
            sizes = sorted(each["spec"]["size"] for each in found["items"])
            assert sizes == list(range(COUNT))
            assert versions_in(main.store) == {f"{GROUP}/v1beta1": COUNT}


def hash_of(version: str) -> str:
    return storage_version_hash(GroupVersionKind(GROUP, version, "Part"))


def persisted(main: ServerProcess) -> list[str]:
    """The versions in which objects may be stored, as hashes."""
    path = f"/apis/migration.k8s.io/v1alpha1/storagestates/parts.{GROUP}"
    _, found = ask(main, "GET", path)
    hashes: list[str] = found["status"]["persistedStorageVersionHashes"]
    return hashes


def versions_in(address: str) -> dict[str, int]:
    """How many objects are in the store in which version, whatever anybody says of it."""

    async def look() -> dict[str, int]:
        storage = await open_storage(address, Runtime.system())
        try:
            return dict(await stored_versions(storage, f"/registry/{GROUP}/parts/"))
        finally:
            await storage.close()

    return asyncio.run(look())
