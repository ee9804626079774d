"""The table of commands: unknown words, and commands whose extra is not installed."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from restow.aio.extras import EXTRAS
from restow.cli.main import COMMANDS, main
from tests.unit.encryption.keys_for_tests import document, kms


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("serve --nonsense", "restow serve"),
        ("up one two", "restow up"),
        ("store put key value --nonsense", "restow store put"),
        ("--nonsense", "restow"),
        ("--nonsense serve", "restow"),
    ],
)
def test_an_unknown_word_is_answered_with_the_usage_of_its_command(
    words: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped option shows the options of the command."""
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: {program} ")
    assert f"\n{program}: error: unrecognized arguments: " in said


SERVER_ADVICE = "needs the extra 'server': pip install 'restow[server]'\n"
ETCD_ADVICE = "needs the extra 'etcd': pip install 'restow[etcd]'\n"


def without(*extras: str) -> str:
    """A program: the command line, without the libraries of these extras."""
    modules = [module for extra in extras for module in EXTRAS[extra]]
    block = f"import sys; sys.modules.update(dict.fromkeys({modules!r}))"
    return f"{block}; from restow.cli.main import main; sys.exit(main())"


def run_without(*extras: str, words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", without(*extras), *words.split()],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("extras", "words", "advice"),
    [
        ("server etcd", "up", SERVER_ADVICE),
        ("server etcd", "serve --help", SERVER_ADVICE),
        ("server", "census --store sqlite:store.db", SERVER_ADVICE),
        ("etcd", "census --store etcd://127.0.0.1:1", ETCD_ADVICE),
        ("etcd", "store get /a --store etcd://127.0.0.1:1", ETCD_ADVICE),
        ("etcd", "serve --port 0 --store etcd://127.0.0.1:1", ETCD_ADVICE),
        ("etcd", "serve --port 0 --workers 2 --store etcds://127.0.0.1:1", ETCD_ADVICE),
        ("etcd", "serve --port 0 --encryption-provider-config kms.json", ETCD_ADVICE),
        ("etcd", "up --store etcd", ETCD_ADVICE),
    ],
)
def test_a_missing_extra_is_named(extras: str, words: str, advice: str, tmp_path: Path) -> None:
    """One line that says what to install, and exit code 2: at start or when needed."""
    (tmp_path / "store.db").touch()
    config = document(("secrets", [kms(f"unix://{tmp_path}/kms.sock"), {"identity": {}}]))
    (tmp_path / "kms.json").write_bytes(config)
    (tmp_path / "kms.json").chmod(0o600)
    done = run_without(*extras.split(), words=words, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    command = words.partition(" ")[0]
    assert done.stderr.splitlines(keepends=True)[-1] == f"restow {command} {advice}"
    assert "Traceback" not in done.stderr


def test_completion_does_without_extras(tmp_path: Path) -> None:
    """All commands are completed; those that cannot be loaded, without their options."""
    done = run_without("server", "etcd", words="completion bash", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(command.name in done.stdout for command in COMMANDS)
    assert "--drop-key" in done.stdout  # of preflight
    assert "--etcd-members" not in done.stdout  # of up


def test_another_library_that_is_missing_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken installation shows its traceback."""

    def load(_name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'orjson'", name="orjson")

    monkeypatch.setattr("restow.cli.main.importlib.import_module", load)
    with pytest.raises(ModuleNotFoundError):
        main(["version"])
