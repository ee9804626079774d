"""Servers without a supervisor that share a front port."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import yaml

from tests.e2e.localcluster.running import Users, wait_for
from tests.support.server_process import ServerProcess


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_servers_share_a_front_port(tmp_path: Path) -> None:
    """Each listens on it when it is ready, and the other keeps serving when one stops."""
    arguments = (f"--front-port={free_port()}",)
    store = f"sqlite:{tmp_path / 'store.db'}"
    first_dir, second_dir = tmp_path / "first", tmp_path / "second"
    with ServerProcess(first_dir, store=store, arguments=arguments) as first:
        shutil.copytree(first_dir / "pki", second_dir / "pki")
        second_dir.chmod(0o700)
        with ServerProcess(second_dir, store=store, arguments=arguments) as second:
            contexts = yaml.safe_load(second.kubeconfig.read_text())["clusters"]
            servers = {each["name"]: each["cluster"]["server"] for each in contexts}
            assert servers["restow"] != servers["restow-own"] == second.url
            with Users(second.kubeconfig) as both:
                wait_for(lambda: sum(both.answers.values()) > 20, "both serve", log=str)
            first.stop()
            with Users(second.kubeconfig) as one:
                wait_for(lambda: sum(one.answers.values()) > 20, "one serves", log=str)
            assert both.failures == one.failures == []
