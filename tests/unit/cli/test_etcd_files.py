"""The three certificate files for etcd become part of the store address."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from restow.cli.etcd_files import add_etcd_files, with_etcd_files
from restow.storage.errors import OpenRefused
from restow.storage.etcd import parse_address

ADDRESS = "etcds://10.0.0.1:2379,10.0.0.2:2379"


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_etcd_files(parser)
    return parser.parse_args(words)


def test_files_reach_the_driver(tmp_path: Path) -> None:
    """With any characters in their names, and together with options in the address."""
    names = [tmp_path / name for name in ("c&a=1.pem", "c+ert?.pem", "k%20ey#.pem")]
    ca, cert, key = map(str, names)
    arguments = parsed("--etcd-cafile", ca, "--etcd-certfile", cert, "--etcd-keyfile", key)
    options = parse_address(with_etcd_files(ADDRESS, arguments))
    assert options.endpoints == ("10.0.0.1:2379", "10.0.0.2:2379")
    assert [options.ca_file, options.cert_file, options.key_file] == names
    beside = with_etcd_files(f"{ADDRESS}?ca=/ca", parsed("--etcd-certfile=c", "--etcd-keyfile=k"))
    assert parse_address(beside).ca_file == Path("/ca")
    assert parse_address(beside).key_file == Path("k").absolute()


def test_without_files_nothing_changes() -> None:
    """Every address stays unchanged."""
    for address in ("", "memory:", "sqlite:a.db", "etcd://h:1", ADDRESS):
        assert with_etcd_files(address, parsed()) == address


@pytest.mark.parametrize(
    ("address", "words", "text"),
    [
        ("etcd://h:1", ["--etcd-cafile=a"], "--etcd-cafile: only for a store at etcds://"),
        ("", ["--etcd-cafile=a"], "not for the store in the data directory"),
        (ADDRESS, ["--etcd-certfile=a"], "must be given together"),
        (f"{ADDRESS}?ca=x", ["--etcd-cafile=a"], "already contains this file"),
    ],
)
def test_files_that_do_not_fit(address: str, words: list[str], text: str) -> None:
    """They are refused, not ignored."""
    with pytest.raises(OpenRefused, match=text):
        with_etcd_files(address, parsed(*words))
