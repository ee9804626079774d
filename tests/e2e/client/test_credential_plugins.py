"""Exec credential plugins of a kubeconfig, with a real server, by the library and by commands."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupVersionResource
from restow.client import ApiClient, CredentialsFailed, read_kubeconfig
from tests.e2e.client.conftest import CONFIG_MAPS, NAMESPACES
from tests.support.certificates import CA_KEY_NAME, CertificateFiles, sign_certificate
from tests.support.credential_plugins import PluginFiles
from tests.support.server_process import ServerProcess

REVIEWS = GroupVersionResource("authentication.k8s.io", "v1", "selfsubjectreviews")


def write_kubeconfig(server: ServerProcess, directory: Path, user: dict[str, Any]) -> Path:
    """A kubeconfig for the server with another user."""
    document = yaml.safe_load(server.kubeconfig.read_bytes())
    document["users"] = [{"name": "u", "user": user}]
    for each in document["contexts"]:
        each["context"]["user"] = "u"
    path = directory / "plugin.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def connect(server: ServerProcess, files: PluginFiles) -> ApiClient:
    path = write_kubeconfig(server, files.directory, files.user())
    return ApiClient.connect(read_kubeconfig([path]), runtime=Runtime.system())


async def name_of(client: ApiClient) -> str:
    found = await client.create(REVIEWS, {"kind": "SelfSubjectReview"})
    return str(found["status"]["userInfo"]["username"])


@pytest.fixture
def files(tmp_path: Path) -> PluginFiles:
    return PluginFiles(tmp_path)


async def test_one_run_for_many_requests(client_server: ServerProcess, files: PluginFiles) -> None:
    """Concurrent first requests share one run of the plugin, and later ones its token."""
    files.returns(token=client_server.token)
    async with connect(client_server, files) as client:
        await asyncio.gather(*(client.list_page(NAMESPACES) for _ in range(16)))
        await client.list_page(NAMESPACES)
    assert files.runs == 1


async def test_a_refused_token_is_renewed(
    client_server: ServerProcess, files: PluginFiles, namespace: str
) -> None:
    """After a 401 the plugin runs again, and the same request succeeds, also a write. If the new
    token is refused as well, the request fails."""
    files.returns(token="revoked")
    async with connect(client_server, files) as client:
        with pytest.raises(status.Unauthorized):
            await client.list_page(NAMESPACES)
        assert files.runs == 2
    revoked, good = ({"status": {"token": each}} for each in ("revoked", client_server.token))
    files.writes(revoked, revoked, revoked, good)
    async with connect(client_server, files) as client:
        made = await client.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, namespace=namespace)
    assert made["metadata"]["name"] == "x"
    assert files.runs == 4


async def test_a_client_certificate_is_renewed(
    client_server: ServerProcess, files: PluginFiles
) -> None:
    """A certificate of the plugin authenticates the connection; when the plugin returns another
    one, no connection with the previous certificate is used."""
    authority = CertificateFiles(*(files.directory / name for name in ("ca.pem", "", "")))
    shutil.copy(client_server.pki_dir / "ca.crt", authority.ca_file)
    shutil.copy(client_server.pki_dir / "ca.key", files.directory / CA_KEY_NAME)
    users = {}
    for name in ("anna", "bert"):
        made = sign_certificate(authority, files.directory / name, name=name)
        users[name] = {
            "clientCertificateData": made.cert_file.read_text(),
            "clientKeyData": made.key_file.read_text(),
        }
    files.returns(**users["anna"])
    path = write_kubeconfig(client_server, files.directory, files.user())
    config, runtime = read_kubeconfig([path]), Runtime.system()
    assert config.plugin is not None
    async with ApiClient.connect(config, runtime=runtime) as client:
        assert [await name_of(client) for _ in range(2)] == ["anna", "anna"]
        assert files.runs == 1
        files.returns(**users["bert"])
        config.plugin.refused(await config.plugin.current(runtime.clock), runtime.clock)
        assert [await name_of(client) for _ in range(2)] == ["bert", "bert"]
    assert files.runs == 2
    files.returns(clientCertificateData="no", clientKeyData="certificate")
    async with connect(client_server, files) as client:
        with pytest.raises(CredentialsFailed, match="are not a pair in PEM form, or the key"):
            await name_of(client)


FAILURES = {
    "fail": "failed with exit code 3: Unable to locate?[31m credentials. Run it in a shell",
    "garbage": "printed 16 bytes that are not an ExecCredential",
    "flood": "printed more than 1048576 bytes",
}


@pytest.mark.parametrize("mode", FAILURES)
@pytest.mark.parametrize("command", ["status", "preflight --to 1.36", "migrate --all", "doctor"])
def test_commands_report_a_failing_plugin(
    client_server: ServerProcess, files: PluginFiles, mode: str, command: str
) -> None:
    """Each command prints one message about the plugin, no traceback, and its documented code."""
    path = write_kubeconfig(client_server, files.directory, files.user(mode))
    done = subprocess.run(
        [sys.executable, "-m", "restow", *command.split(), "--kubeconfig", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    shown = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == (1 if command in {"status", "migrate --all"} else 2), shown
    assert "Traceback" not in shown
    if command != "doctor":  # its table wraps
        assert FAILURES[mode] in shown
        assert len(done.stderr.splitlines()) == 1


def test_a_plugin_that_reads_the_terminal(client_server: ServerProcess, files: PluginFiles) -> None:
    """In a terminal, a plugin of interactiveMode Always reads what the user types; without one the
    command says that it is needed."""
    files.returns(token=client_server.token)
    user = files.user("input", interactiveMode="Always")
    path = write_kubeconfig(client_server, files.directory, user)
    command = [sys.executable, "-m", "restow", "status", "--kubeconfig", str(path), "namespaces"]
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, start_new_session=True
        )
        os.write(ours, b"123456\n")
        out, _ = process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == 0
    assert b"namespaces" in out
    assert (files.directory / "input").read_text() == "123456\n"
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "needs a terminal (interactiveMode: Always)" in done.stderr


def test_flags_without_a_kubeconfig(client_server: ServerProcess, tmp_path: Path) -> None:
    """A server, its authority and a token as flags are enough; a wrong token is one message."""
    authority = tmp_path / "ca.crt"
    authority.write_text(client_server.ca_pem)
    for token, code in ((client_server.token, 0), ("wrong", 1)):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "restow", "status", "namespaces"),
                *("--server", client_server.url, "--token", token),
                *("--certificate-authority", str(authority)),
            ],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        text = "restow status: Unauthorized: the server does not accept the credential: check the "
        assert done.stderr.startswith(text if code else "")
        assert len(done.stderr.splitlines()) == code
