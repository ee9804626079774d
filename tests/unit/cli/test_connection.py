"""The flags that select a cluster, the same in all commands that use the API."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml

from restow.cli.connection import add_connection, find_cluster
from restow.cli.hints import Hints
from restow.cli.main import make_whole_parser

FLAGS = (
    *("--cluster", "c", "--user", "u", "--server", "https://h", "--tls-server-name", "n"),
    *("--certificate-authority", "ca", "--token", "secret", "--client-certificate", "cert"),
    *("--client-key", "key", "--as", "a", "--as-group", "g", "--as-group", "h", "--as-uid", "7"),
    "--insecure-skip-tls-verify",
)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_connection(parser)
    return parser.parse_args(words)


COMMANDS = ("status", "migrate --all", "preflight --to 1.36", "controllers", "doctor")


@pytest.mark.parametrize("command", COMMANDS)
def test_all_commands_take_the_flags(command: str) -> None:
    """Each command accepts every flag of kubectl that selects the cluster."""
    parser = make_whole_parser()
    given = parser.parse_args([*command.split(), *FLAGS])
    assert (given.server, given.as_group, given.as_uid) == ("https://h", ["g", "h"], "7")
    assert parser.parse_args([*command.split(), "-s", "https://h"]).server == "https://h"


def test_flags_reach_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flag has its effect on the configuration."""
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    path = tmp_path / "config"
    value = {
        "clusters": [{"name": "c", "cluster": {"server": "https://other"}}],
        "users": [{"name": "u", "user": {"token": "t", "as-user-extra": {"k": ["v"]}}}],
    }
    path.write_text(yaml.safe_dump(value))
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    words = [each for each in FLAGS if each != "--insecure-skip-tls-verify"]
    config = find_cluster(parsed("--kubeconfig", str(path), *words))
    assert (config.server, config.server_name, config.token) == ("https://h", "n", "secret")
    pems = (config.ca_pem, config.client_cert_pem, config.client_key_pem)
    assert pems == ("ca", "cert", "key")
    assert dict(config.impersonation) == {
        "Impersonate-User": "a",
        "Impersonate-Group": "h",
        "Impersonate-Uid": "7",
        "Impersonate-Extra-k": "v",
    }
    insecure = parsed("--kubeconfig", str(path), "--cluster", "c", "--insecure-skip-tls-verify")
    assert not find_cluster(insecure).is_verified


def test_printed_commands_repeat_the_flags() -> None:
    """A printed command acts on the same cluster as the same user, without the token."""
    hints = Hints.of(parsed("--context", "x", *FLAGS))
    found = hints.command("status", "-w")
    assert parsed(*found.split()[2:-1]).as_group == ["g", "h"]
    assert "--token TOKEN " in found
    assert "secret" not in found
    assert hints.command("kubectl", "get", "cm").startswith("kubectl --context x --cluster c ")
