"""A store of a cluster with other keys is refused before keys are generated."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.apiserver.aggregated_store import CLUSTER_KEY
from restow.apiserver.cluster_keys import check_keys_exist, owner_of
from restow.storage.errors import OpenRefused
from tests.unit.census.stores import fill


def check(store: Path, pki: Path) -> None:
    asyncio.run(check_keys_exist(f"sqlite:{store}", pki, Runtime.system()))


def test_store_without_owner(tmp_path: Path) -> None:
    """Keys are generated for a new store, and for one without an owner."""
    store = tmp_path / "store.db"
    check(store, tmp_path / "pki")
    assert not store.exists()
    asyncio.run(fill(f"sqlite:{store}", {"/registry/pods/default/a": b"{}"}))
    check(store, tmp_path / "pki")
    assert asyncio.run(owner_of("memory:", Runtime.system())) == ""


def test_existing_keys_are_compared_later(tmp_path: Path) -> None:
    """Only a missing directory is refused here."""
    store = tmp_path / "store.db"
    asyncio.run(fill(f"sqlite:{store}", {CLUSTER_KEY: b"fingerprint"}))
    with pytest.raises(OpenRefused, match="copy the directory pki of that cluster"):
        check(store, tmp_path / "pki")
    (tmp_path / "pki").mkdir()
    check(store, tmp_path / "pki")


@pytest.mark.parametrize("words", [(), ("--workers", "2")])
def test_serve_generates_no_keys_for_a_foreign_store(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The directory stays free for the copy that the message asks for."""
    data_dir = tmp_path / "d"
    data_dir.mkdir(mode=0o700)
    asyncio.run(fill(f"sqlite:{data_dir / 'store.db'}", {CLUSTER_KEY: b"fingerprint"}))
    # In a process of its own: the command configures logging globally.
    command = [sys.executable, "-m", "restow", "serve", "--data-dir", str(data_dir), "--port", "0"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"(cp -a pki {data_dir / 'pki'})" in done.stderr
    assert not (data_dir / "pki").exists()
