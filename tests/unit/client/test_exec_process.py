"""One run of a credential plugin, as a real process."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from restow.aio import SimulatedClock, SystemClock
from restow.client import ConfigInvalid, CredentialsFailed, read_kubeconfig
from restow.client import exec_process as process_module
from restow.client.exec_plugin import ExecPlugin, PluginAnswerInvalid, PluginCredential, read_answer
from restow.client.exec_process import ExecProcess, Terminal
from tests.support.certificates import make_certificate
from tests.support.credential_plugins import SCRIPT, V1, V1BETA1, PluginFiles

SERVER = "https://h:6443"
NONE = Terminal(has_input=False, has_errors=False)
KEYBOARD = Terminal(has_input=True, has_errors=False)


@pytest.fixture
def files(tmp_path: Path) -> PluginFiles:
    found = PluginFiles(tmp_path)
    found.returns(token="t1")
    return found


def plugin_of(
    directory: Path,
    user: dict[str, Any],
    *,
    cluster: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
) -> ExecPlugin:
    """The plugin of a kubeconfig in this directory."""
    path = directory / "config"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    config = read_kubeconfig([path], environ=os.environ if environ is None else environ)
    assert config.plugin is not None
    return config.plugin.plugin


async def run(plugin: ExecPlugin, terminal: Terminal = NONE) -> PluginCredential:
    return await ExecProcess(plugin, SystemClock(), terminal).run()


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_a_token(files: PluginFiles, version: str) -> None:
    """A plugin of v1 or v1beta1 returns a token with its expiry; it is told its version, and that
    standard input is not for it."""
    files.returns(token="t1", expirationTimestamp="2030-01-02T03:04:05Z")
    found = await run(plugin_of(files.directory, files.user(apiVersion=version)))
    assert found.token == "t1"
    assert found.expires == datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert files.info == {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {"interactive": False},
    }
    assert "t1" not in repr(found)


async def test_the_cluster_is_passed_on_request(files: PluginFiles) -> None:
    """With provideClusterInfo the plugin gets the cluster, its CA as data, and the extension for
    plugins."""
    made = make_certificate(files.directory / "pki", name="c")
    cluster = {
        "certificate-authority": "pki/" + made.ca_file.name,
        "tls-server-name": "name",
        "proxy-url": "http://p:3128",
        "extensions": [
            {"name": "other", "extension": 1},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
        ],
    }
    user = files.user(provideClusterInfo=True)
    await run(plugin_of(files.directory, user, cluster=cluster))
    assert files.info["spec"]["cluster"] == {
        "server": SERVER,
        "tls-server-name": "name",
        "proxy-url": "http://p:3128",
        "certificate-authority-data": base64.b64encode(made.ca_file.read_bytes()).decode(),
        "config": {"audience": "a"},
    }


async def test_the_environment_of_a_plugin(files: PluginFiles) -> None:
    """It has the environment of this process and `env`, which wins; `env` does not change where the
    plugin is searched for."""
    program = files.directory / "bin" / "dump"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$A $B $PATH" >{files.directory}/dump\nexit 1\n')
    program.chmod(0o700)
    env = [{"name": "A", "value": "1"}, {"name": "PATH", "value": "/nowhere"}]
    user = files.user(command="dump", args=[], env=env)
    environ = {"PATH": f"relative:{program.parent}", "A": "0", "B": "2"}
    with pytest.raises(CredentialsFailed, match="exit code 1"):
        await run(plugin_of(files.directory, user, environ=environ))
    assert (files.directory / "dump").read_text() == "1 2 /nowhere\n"


async def test_a_command_with_a_slash_is_relative_to_its_kubeconfig(
    files: PluginFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./plugin` is beside the kubeconfig; a bare name is searched for in PATH, and never in the
    current directory."""
    program = files.directory / "plugin"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {SCRIPT} credential "$1"\n')
    program.chmod(0o700)
    arguments = [str(files.directory)]
    user = files.user(command="./plugin", args=arguments)
    assert (await run(plugin_of(files.directory, user))).token == "t1"
    monkeypatch.chdir(files.directory)
    user = files.user(command="plugin", args=arguments)
    with pytest.raises(CredentialsFailed, match="was not found"):
        await run(plugin_of(files.directory, user, environ={"PATH": ".:/usr/bin"}))


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "fail": ({}, r"'.*' failed with exit code 3: Unable to locate\?\[31m credentials\. Run it in "),
    "garbage": ({}, r"printed 16 bytes that are not an ExecCredential"),
    "silent": ({}, r"printed nothing"),
    "flood": ({}, r"printed more than 1048576 bytes"),
    "missing": (
        {"command": "no-such-plugin", "installHint": "Install it\nby: \x1b[1mapt"},
        r"the credential plugin 'no-such-plugin' was not found\. Install it by: \?\[1mapt$",
    ),
    "without-hint": ({"command": "no-such-plugin"}, r"not found\. Install it, or correct PATH$"),
    "directory": ({"command": "/tmp"}, r"cannot be run: Permission denied"),
    "terminal": ({"interactiveMode": "Always"}, r"needs a terminal \(interactiveMode: Always\)"),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_plugin_that_fails(files: PluginFiles, case: str) -> None:
    """Each failure is one line: the file, the user, the plugin, the reason, and what to do. Output
    that could be a credential is not repeated."""
    more, text = FAILURES[case]
    with pytest.raises(CredentialsFailed, match=text) as caught:
        await run(plugin_of(files.directory, files.user(case, **more)))
    shown = str(caught.value)
    assert shown.startswith(f"{SERVER}: {files.directory}/config: user 'u': the credential plugin")
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert "secret" not in shown


ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "Pod"}, "printed an object of kind 'Pod'"),
    "version": (
        {"apiVersion": V1BETA1, "status": {"token": "t"}},
        f"returned apiVersion '{V1BETA1}', but the kubeconfig has {V1}",
    ),
    "no-status": ({}, "returned no status"),
    "empty": ({"status": {}}, "returned neither a token nor a client certificate"),
    "half": ({"status": {"clientKeyData": "x"}}, "returned only one of clientCertificateData"),
    "number": ({"status": {"token": 7}}, "returned a token that is not a string"),
    "header": ({"status": {"token": "a\r\nb"}}, "a token that is not valid in a header"),
    "time": (
        {"status": {"token": "t", "expirationTimestamp": "soon"}},
        "an expirationTimestamp that is not a time: 'soon'",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_an_answer_that_is_none(files: PluginFiles, case: str) -> None:
    """An ExecCredential of another version, or without a usable credential, is refused."""
    answer, text = ANSWERS[case]
    files.writes(answer)
    with pytest.raises(CredentialsFailed, match=text):
        await run(plugin_of(files.directory, files.user()))


def test_an_answer_in_yaml() -> None:
    """As client-go, the client accepts YAML as well."""
    text = (
        f"kind: ExecCredential\napiVersion: {V1}\n"
        "status: {token: t, expirationTimestamp: 2030-01-02T03:04:05+01:00}\n"
    )
    found = read_answer(text.encode(), api_version=V1)
    assert found.expires == datetime(2030, 1, 2, 2, 4, 5, tzinfo=UTC)
    with pytest.raises(PluginAnswerInvalid, match="not an ExecCredential"):
        read_answer(b"{1", api_version=V1)


async def test_a_plugin_that_hangs(files: PluginFiles) -> None:
    """A plugin that does not finish is killed with its children, and the message has the end of its
    standard error."""
    clock = SimulatedClock()
    plugin = plugin_of(files.directory, files.user("hang"))
    task = asyncio.ensure_future(ExecProcess(plugin, clock, NONE).run())
    child = files.directory / "child"
    await until(lambda: child.exists() and child.read_text() != "")
    await asyncio.sleep(0.2)  # its standard error
    await clock.advance(process_module.RUN_SECONDS_MAX)
    with pytest.raises(CredentialsFailed, match=r"within 60 s: waiting for a login\. Run it in a"):
        await task
    pids = [int(child.read_text()), int((files.directory / "runs").read_text())]
    await until(lambda: not any(is_running(pid) for pid in pids))


async def test_a_plugin_is_killed_with_its_request(files: PluginFiles) -> None:
    """When the request is cancelled, the plugin is killed."""
    task = asyncio.ensure_future(run(plugin_of(files.directory, files.user("hang"))))
    await until(lambda: files.runs == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = int((files.directory / "runs").read_text())
    await until(lambda: not is_running(pid))


@pytest.mark.parametrize(
    ("mode", "terminal", "is_interactive"),
    [
        ("Never", KEYBOARD, False),
        ("IfAvailable", KEYBOARD, True),
        ("IfAvailable", NONE, False),
        ("Always", KEYBOARD, True),
    ],
)
async def test_interactive_modes(
    files: PluginFiles, mode: str, terminal: Terminal, *, is_interactive: bool
) -> None:
    """Standard input is passed, and announced, by interactiveMode and whether there is a
    terminal."""
    plugin = plugin_of(files.directory, files.user(interactiveMode=mode))
    await run(plugin, terminal)
    assert files.info["spec"]["interactive"] is is_interactive


async def test_a_plugin_of_an_older_version_without_a_mode(files: PluginFiles) -> None:
    """v1beta1 without interactiveMode means IfAvailable, v1 requires it."""
    user = files.user(apiVersion=V1BETA1, interactiveMode=None)
    await run(plugin_of(files.directory, user), KEYBOARD)
    assert files.info["spec"]["interactive"] is True
    with pytest.raises(ConfigInvalid, match="exec: interactiveMode is not set; v1 requires it"):
        plugin_of(files.directory, files.user(interactiveMode=None))


async def test_arguments_are_passed_unchanged(files: PluginFiles) -> None:
    """Arguments are not interpreted by a shell."""
    odd = files.directory / "a b;$HOME"
    odd.mkdir()
    (odd / "status").write_text('[{"status": {"token": "t2"}}]')
    user = files.user(args=[str(SCRIPT), "credential", str(odd)])
    found = await run(plugin_of(files.directory, user))
    assert found.token == "t2"


async def until(condition: Callable[[], bool]) -> None:
    """Waits for an effect of another process."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (the conditions have no events)
            await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
