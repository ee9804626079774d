"""The wheel, built from the source archive and installed beside nothing of this checkout.

Its environment sees the libraries of the one that runs the tests, but not the editable install
there: a path in a `.pth` file is searched, and `.pth` files found at that path are not read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson
import pytest

import restow
from restow.dashboard.assets import load_assets
from restow.kinds.releases import shipped_releases
from restow.testing.server_process import ServerProcess
from tests.e2e.cluster.running import Up

ROOT: Final = Path(__file__).parents[2]
SECONDS_MAX: Final = 90

pytestmark = pytest.mark.area("packaging")


class InstalledServer(ServerProcess):
    """`restow serve`, by the installed command."""

    def __init__(self, data_dir: Path, command: Path, *, arguments: Sequence[str] = ()) -> None:
        super().__init__(data_dir, arguments=arguments)
        self._command = command

    def command(self) -> list[str]:
        words = super().command()
        begin, end = words.index(sys.executable), words.index("serve")
        return [*words[:begin], str(self._command), *words[end:]]


class Installed:
    """An environment with the wheel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.restow = folder / "bin" / "restow"
        self.python = folder / "bin" / "python"

    def run(self, *words: str) -> str:
        """What a command prints, run far from the checkout."""
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
            cwd=self.folder,
            env=plain_environment(self.folder),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def plain_environment(home: Path) -> dict[str, str]:
    """This environment without what leads Python back to the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "HOME": str(home)}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    return build("sdist", source=ROOT, folder=tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the unpacked archive."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as opened:
        opened.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    return build("wheel", source=source, folder=tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A new environment with the wheel. Nothing is fetched."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    made = Installed(folder)
    words = ["--python", str(made.python), "install", "--no-index", "--no-deps", "--quiet"]
    made.run(sys.executable, "-m", "pip", "--disable-pip-version-check", *words, str(wheel))
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def build(target: str, *, source: Path, folder: Path) -> Path:
    """Run the build backend, which is installed already."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    return made


def package_files() -> set[str]:
    """All files of the package in the checkout."""
    package = ROOT / "src"
    return {
        str(path.relative_to(package))
        for path in (package / "restow").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file(wheel: Path) -> None:
    """Code, types, data, releases and the page are in it, and nothing else but its own records."""
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert names == package_files()
    assert {"restow/py.typed", "restow/kinds/data/types.bin"} <= names
    assert any(name.startswith("restow/dashboard/static/") for name in names)


def test_the_archive_has_what_was_named(archive: Path) -> None:
    """The source archive can be tested, and holds no data directory that lies in the checkout."""
    with tarfile.open(archive) as opened:
        names = {Path(name).parts[1] for name in opened.getnames()}
    assert {"src", "tests", "tools", "docs", "pyproject.toml", "LICENSE"} <= names
    allowed = {"PKG-INFO", ".gitignore", ".importlinter", "README.md", "CHANGELOG.md", "Makefile"}
    allowed |= {"benchmarks", "deploy", "examples"}
    allowed |= {"SECURITY.md", "requirements.lock"}
    allowed |= {"requirements-audit-tool.lock", "requirements-lock-tool.lock"}
    allowed |= {"requirements-run.lock"}
    assert names <= allowed | {"src", "tests", "tools", "docs", "pyproject.toml", "LICENSE"}


def test_commands_and_data(installed: Installed) -> None:
    """The installed package is the one that runs, with its version, releases and completion."""
    where = "import restow; print(restow.__file__)"
    place = Path(installed.run(str(installed.python), "-c", where).strip())
    assert place.is_relative_to(installed.folder)
    command = str(installed.restow)
    assert orjson.loads(installed.run(command, "version", "-o", "json")) == {
        "restow": restow.__version__,
        "python": sys.version.split()[0],
    }
    assert "complete -F _restow restow" in installed.run(command, "completion", "bash")
    releases = "from restow.kinds.releases import *; print(*shipped_releases())"
    found = installed.run(str(installed.python), "-c", releases).split()
    assert found == list(shipped_releases())
    assert "x+1" in found


def test_serve(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed server hosts a shipped release for kubectl, and shows the whole dashboard."""
    monkeypatch.chdir(tmp_path)
    server = InstalledServer(tmp_path / "data", installed.restow, arguments=["--release", "x+1"])
    with server:
        by_name = ("get", "namespaces", "-o", "name")
        listed = installed.run("kubectl", f"--kubeconfig={server.kubeconfig}", *by_name)
        assert "namespace/default" in listed.split()
        for name in load_assets():
            assert server.get(f"/dashboard/static/{name}")[0] == 200, name
        assert "<html" in server.get("/dashboard/")[1]
        assert server.stop() == 0


def test_up(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of an installed `restow up` are of the installed package too."""
    monkeypatch.chdir(tmp_path)
    with InstalledUp(tmp_path / "data", installed) as up:
        up.ready()
        assert "namespace/default" in up.kubectl("get", "namespaces", "-o", "name").split()
        servers = [pid for name, pid in up.pids().items() if name.startswith("server-")]
        assert len(servers) == 2, up.pids()
        for pid in servers:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            assert words[0] == str(installed.python), words
        assert up.stop() == 0


class InstalledUp(Up):
    """`restow up` with two servers, by the installed command."""

    def __init__(self, data_dir: Path, installed: Installed) -> None:
        super().__init__(data_dir, "--servers=2", "--port=0")
        self._command[: self._command.index("up")] = [str(installed.restow)]
