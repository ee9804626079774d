"""An aggregated server with a store of its own: it reports its encoding versions to the main
servers."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from restow.apis.names import KEYS_ANNOTATION
from restow.census.values import read_value
from restow.storage.interface import Span, Storage
from tests.e2e.aggregated.history import look
from tests.e2e.aggregated.stage import (
    ask,
    entries,
    is_available,
    kinds_file,
    part,
    parts_path,
    stores,
    until,
)
from tests.support.aggregated_process import AggregatedProcess
from tests.support.child_process import ProcessFailed
from tests.support.controllers_process import ControllersProcess
from tests.support.encryption_files import write_encryption_file
from tests.support.server_process import ServerProcess

GROUP: Final = "own.example.com"
LOST_GROUP: Final = "lost.example.com"
SEALED_GROUP: Final = "sealed.example.com"
OLD, NEW = "secretbox:old", "aesgcm:new"


def test_reports_with_a_store_of_its_own(main: ServerProcess, tmp_path: Path) -> None:
    """Its entry is reported with the store's ID and removed when it stops; its objects stay."""
    behind = AggregatedProcess(
        tmp_path / "one", main=main, kinds=kinds_file(tmp_path, "v1", group=GROUP)
    )
    with behind:
        until(lambda: is_available(main, group=GROUP))
        assert ask(main, "POST", parts_path(group=GROUP), part("a", group=GROUP))[0] == 201
        path = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{GROUP}.parts"
        _, report = ask(main, "GET", path)
        assert "coordination.restow.dev/stores" in report["metadata"]["annotations"]
        assert list(entries(main, group=GROUP).values()) == [f"{GROUP}/v1"]
        assert behind.stop() == 0
        until(lambda: not entries(main, group=GROUP))
        behind.start()
        until(lambda: is_available(main, group=GROUP))
        assert ask(main, "GET", parts_path(name="a", group=GROUP))[0] == 200


def test_a_lost_store_is_forgotten_on_request(main: ServerProcess, tmp_path: Path) -> None:
    """Entries of a store that was wiped keep a new one from serving, with a message that says
    what to do; after that, they are removed, and the server serves. It refuses to forget its own
    store."""
    kinds = kinds_file(tmp_path, "v1", group=LOST_GROUP)
    behind = AggregatedProcess(tmp_path / "one", main=main, kinds=kinds)
    with behind:
        until(lambda: is_available(main, group=LOST_GROUP))
        [old] = entries(main, group=LOST_GROUP)
        lost = stores(main, group=LOST_GROUP)[old]
        behind.kill()
        behind.directory.rename(tmp_path / "lost")
        shutil.copytree(tmp_path / "lost" / "pki", behind.pki_dir)
        behind.launch()
        until(lambda: f"start this one with --forget-store {lost}" in behind.log())
        assert list(entries(main, group=LOST_GROUP)) == [old]
        behind.kill()
        behind.arguments = ("--forget-store", lost)
        behind.start()
        until(lambda: is_available(main, group=LOST_GROUP))
        [new] = entries(main, group=LOST_GROUP)
        assert new != old
        behind.kill()
        behind.arguments = ("--forget-store", stores(main, group=LOST_GROUP)[new])
        with pytest.raises(ProcessFailed, match="that is this server's own store"):
            behind.start()


def test_a_key_is_rotated_in_a_store_of_its_own(main: ServerProcess, tmp_path: Path) -> None:
    """The main servers get the key it writes with; when another key is first in its file they
    get that, all objects are rewritten, and only then the old key is no longer listed."""
    file = write_encryption_file(tmp_path / "keys", OLD, "identity")
    behind = AggregatedProcess(
        tmp_path / "one",
        main=main,
        kinds=kinds_file(tmp_path, "v1", group=SEALED_GROUP),
        arguments=("--encryption-provider-config", str(file)),
    )
    with behind:
        until(lambda: is_available(main, group=SEALED_GROUP))
        for name in ("a", "b", "c"):
            body = part(name, group=SEALED_GROUP)
            assert ask(main, "POST", parts_path(group=SEALED_GROUP), body)[0] == 201
        assert written_with(main) == [OLD]
        assert persisted_keys(main) == ["identity", OLD], "what was there before is not known"
        assert values_by_key(behind) == {OLD: 3}
        write_encryption_file(file, NEW, OLD, "identity")
        until(lambda: written_with(main) == [NEW])
        assert persisted_keys(main) == ["identity", OLD, NEW]
        with ControllersProcess(tmp_path / "controllers", kubeconfig=main.kubeconfig):
            until(lambda: persisted_keys(main) == [NEW])
        assert values_by_key(behind) == {NEW: 3}
        assert ask(main, "GET", parts_path(name="a", group=SEALED_GROUP))[0] == 200


def written_with(main: ServerProcess) -> list[str]:
    """Returns the reported keys of servers, without their fingerprints."""
    path = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{SEALED_GROUP}.parts"
    _, found = ask(main, "GET", path)
    said = json.loads(found["metadata"]["annotations"][KEYS_ANNOTATION])
    return [key.rpartition(":")[0] for key in said.values()]


def persisted_keys(main: ServerProcess) -> list[str]:
    """Returns the keys under which objects may be stored, according to the main servers."""
    path = f"/apis/migration.k8s.io/v1alpha1/storagestates/parts.{SEALED_GROUP}"
    _, found = ask(main, "GET", path)
    return [key.rpartition(":")[0] or key for key in found["status"]["persistedEncryptionKeys"]]


def values_by_key(behind: AggregatedProcess) -> Counter[str]:
    """Counts the values by key, in the store itself."""

    async def read(storage: Storage) -> Counter[str]:
        found = (await storage.range(Span.of_prefix(f"/registry/{SEALED_GROUP}/"))).items
        values = [read_value(item.value) for item in found]
        return Counter(f"{value.provider}:{value.key}" for value in values)

    return look(f"sqlite:{behind.directory / 'store.db'}", read)


def test_invalid_configurations_are_refused(main: ServerProcess, tmp_path: Path) -> None:
    """Kinds that cannot be served, and keys that differ from the peers' keys, end the start with
    a message that gives the reason."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: ConfigMap\napiVersion: v1\n")
    with pytest.raises(ProcessFailed, match="ConfigMap of v1 is not a CustomResourceDefinition"):
        AggregatedProcess(tmp_path / "wrong", main=main, kinds=wrong).start()
    kinds = kinds_file(tmp_path, "v1", group="other.example.com")
    component = ("--component", "others")
    one = AggregatedProcess(
        tmp_path / "others", main=main, kinds=kinds, store=main.store, arguments=component
    )
    with one:
        other = AggregatedProcess(
            tmp_path / "stranger", main=main, kinds=kinds, store=main.store, arguments=component
        )
        with pytest.raises(ProcessFailed, match="component others with other keys use this store"):
            other.start()
