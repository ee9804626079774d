"""The wheel, built from the source archive and installed without access to this checkout.

Its environment has the libraries of the one that runs the tests, but not the editable install
there: a path in a `.pth` file is added to sys.path, but `.pth` files at that path are not read.
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
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

import orjson
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import restow
from restow.dashboard.assets import load_assets
from restow.kinds.releases import shipped_releases
from tests.e2e.localcluster.running import Up
from tests.support.server_process import ServerProcess

ROOT: Final = Path(__file__).parents[2]
SECONDS_MAX: Final = 90
BASE_PACKAGES_MAX: Final = 15
BASE_BYTES_MAX: Final = 60_000_000
"""As shipped; with bytecode compiled by pip it is half as much again."""

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
    """An environment with the wheel installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.restow = folder / "bin" / "restow"
        self.python = folder / "bin" / "python"

    def run(self, *words: str) -> str:
        """Returns the output of a command, run outside of the checkout."""
        done = self.try_to(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_to(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command that may fail."""
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
            cwd=self.folder,
            env=plain_environment(self.folder),
        )

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def install(self, wheel: Path, *options: str) -> None:
        """Installs a wheel without downloads."""
        words = ["--python", str(self.python), "install", "--no-index", "--quiet", *options]
        self.run(sys.executable, "-m", "pip", "--disable-pip-version-check", *words, str(wheel))


def plain_environment(home: Path) -> dict[str, str]:
    """Returns the environment without variables that lead Python to the checkout."""
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
    """A new environment with the wheel and all libraries."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    made = Installed(folder)
    made.install(wheel, "--no-deps")
    (made.packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A new environment with the wheel and its required libraries, without extras.

    pip itself checks that they suffice: it may download nothing, and would fail.
    """
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, symlinks=True)
    made = Installed(folder)
    for library in base_libraries():
        for name in top_names(library):
            (made.packages / name).symlink_to(str(library.locate_file(name)))
    made.install(wheel)
    return made


def base_libraries() -> list[Distribution]:
    """Returns the libraries that the package requires without extras, with their requirements."""
    found: dict[str, Distribution] = {}
    missing = ["restow"]
    while missing:
        name = canonicalize_name(missing.pop())
        if name not in found:
            found[name] = distribution(name)
            for each in map(Requirement, found[name].requires or ()):
                if each.marker is None or each.marker.evaluate({"extra": ""}):
                    missing.append(each.name)
    del found["restow"]
    return list(found.values())


def top_names(library: Distribution) -> set[str]:
    """Returns the files and folders of a library in site-packages."""
    names = {file.parts[0] for file in library.files or ()}
    return names - {"..", "__pycache__"}


def build(target: str, *, source: Path, folder: Path) -> Path:
    """Runs the build backend, which is already installed."""
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
    """Returns all files of the package in the checkout."""
    package = ROOT / "src"
    return {
        str(path.relative_to(package))
        for path in (package / "restow").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file(wheel: Path) -> None:
    """It has code, types, data, releases and the dashboard, and nothing else except its
    metadata."""
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert names == package_files()
    assert {"restow/py.typed", "restow/kinds/data/types.bin"} <= names
    assert any(name.startswith("restow/dashboard/static/") for name in names)


def test_the_archive_has_the_declared_files(archive: Path) -> None:
    """The source archive can be tested, and contains no data directory of the checkout."""
    with tarfile.open(archive) as opened:
        names = {Path(name).parts[1] for name in opened.getnames()}
    assert {"src", "tests", "tools", "docs", "pyproject.toml", "LICENSE"} <= names
    allowed = {"PKG-INFO", ".gitignore", ".importlinter", "README.md", "CHANGELOG.md", "Makefile"}
    allowed |= {"benchmarks", "deploy", "examples"}
    allowed |= {"CONTRIBUTING.md", "SECURITY.md", "requirements.lock"}
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
    """An installed server serves a shipped release to kubectl, and the complete dashboard."""
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


def test_the_base_is_small(base: Installed) -> None:
    """`pip install restow` installs few packages, and none of a server or of etcd."""
    packages = list(base.packages.glob("*.dist-info"))
    assert len(packages) <= BASE_PACKAGES_MAX
    size = sum(
        file.stat().st_size
        for folder in base.packages.iterdir()
        for file in (folder.rglob("*") if folder.is_dir() else [folder])
        if file.is_file() and "__pycache__" not in file.parts
    )
    assert size <= BASE_BYTES_MAX
    assert not (base.packages / "apsw").exists()
    assert not (base.packages / "grpc").exists()


def test_the_base_works_with_a_server(
    base: Installed, installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without extras, the client commands work against a real server."""
    monkeypatch.chdir(tmp_path)
    with InstalledServer(tmp_path / "data", installed.restow) as server:
        cluster = f"--kubeconfig={server.kubeconfig}"
        command = str(base.restow)
        assert "configmaps" in base.run(command, "status", cluster)
        assert "1 succeeded" in base.run(command, "migrate", "configmaps", cluster)
        assert "ok" in base.try_to(command, "doctor", cluster).stdout
        verdict = base.run(command, "preflight", "--to=builtin", "-o=json", cluster)
        assert orjson.loads(verdict)["verdict"] == "safe"
        assert server.stop() == 0


def test_the_base_names_the_missing_extra(base: Installed) -> None:
    """A server needs an extra, and the command names it, in one line with exit code 2."""
    for words, extra in (
        (("up",), "server"),
        (("serve",), "server"),
        (("census", "--store=etcd://127.0.0.1:1"), "etcd"),
    ):
        done = base.try_to(str(base.restow), *words)
        advice = f"restow {words[0]} needs the extra '{extra}': pip install 'restow[{extra}]'\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", advice)


def test_up(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of an installed `restow up` run the installed package too."""
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
