"""The lock files: exact, hashed, complete, and free of any host."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import node_packages

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]
EXTRAS = PROJECT["project"]["optional-dependencies"]

# The input of each lock file, see `make lock`.
SOURCES = {
    "requirements.lock": [
        *PROJECT["project"]["dependencies"],
        *(text for extra in EXTRAS.values() for text in extra),
        *PROJECT["build-system"]["requires"],
        *GROUPS["build"],
        *GROUPS["test"],
        *GROUPS["lint"],
    ],
    "requirements-run.lock": [
        *PROJECT["project"]["dependencies"],
        *EXTRAS["etcd"],
        *EXTRAS["server"],
        *PROJECT["build-system"]["requires"],
        *GROUPS["build"],
    ],
    "requirements-audit-tool.lock": GROUPS["audit"],
    "requirements-lock-tool.lock": GROUPS["lock"],
}

each_lock = pytest.mark.parametrize("lock", SOURCES)


def _entries(lock: str) -> list[str]:
    text = (ROOT / lock).read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [line for line in joined.splitlines() if line.strip()]


@each_lock
def test_every_entry_is_a_pin_with_hashes(lock: str) -> None:
    """An entry has a name, one version, optionally extras and a marker, and hashes. No host and no
    path is allowed."""
    pin = re.compile(
        r"[a-z0-9-]+(?:\[[a-z0-9, -]+\])?==[A-Za-z0-9.!+]+"
        r"(?: ; [A-Za-z0-9_ .'<>=!()]+?)?"
        r"(?: ?--hash=sha256:[0-9a-f]{64})+"
    )
    assert [entry for entry in _entries(lock) if not pin.fullmatch(entry)] == []


@each_lock
def test_the_lock_names_no_host(lock: str) -> None:
    """The lock can be installed from any index."""
    assert re.findall(r"://|--(?:extra-)?index|--find-links|^/", (ROOT / lock).read_text()) == []


@each_lock
def test_the_lock_satisfies_the_project(lock: str) -> None:
    """Every declared dependency is pinned, to a version inside its range."""
    pins = {
        canonicalize_name(name): version
        for name, version in re.findall(
            r"^([a-z0-9-]+)(?:\[.*?\])?==(\S+)", "\n".join(_entries(lock)), flags=re.MULTILINE
        )
    }
    wanted = [Requirement(text) for text in SOURCES[lock]]
    outside = [
        str(requirement)
        for requirement in wanted
        if not requirement.specifier.contains(
            pins.get(canonicalize_name(requirement.name), "0"), prereleases=True
        )
        or canonicalize_name(requirement.name) not in pins
    ]
    assert outside == [], "run `make lock`"


def test_running_uses_tested_versions() -> None:
    """Every entry of the lock for running is one of the whole lock: same version, same files."""
    run, tested = (
        {entry.split()[0]: set(re.findall(r"sha256:\w+", entry)) for entry in _entries(lock)}
        for lock in ("requirements-run.lock", "requirements.lock")
    )
    assert run == {pin: tested.get(pin) for pin in run}, "run `make lock`"
    assert len(run) < len(tested) / 3


def test_no_uv_lock() -> None:
    """uv's own lock file names its package index, so there is none."""
    assert not (ROOT / "uv.lock").exists()


def test_every_dependency_has_its_reason() -> None:
    """Each line that names a dependency ends with a comment."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    names = "|".join(
        re.escape(text)
        for text in [
            *PROJECT["project"]["dependencies"],
            *(t for table in (EXTRAS, GROUPS) for each in table.values() for t in each),
        ]
    )
    declared = [line for line in lines if re.match(rf'\s+"(?:{names})"', line)]
    assert declared
    assert [line for line in declared if not re.search(r"# .{8,}", line)] == []


def test_node_packages_have_hashes() -> None:
    """Every Node package has a version and a hash, and no host, so any registry can be used."""
    text = node_packages.LOCK.read_text()
    assert "://" not in text
    wanted, *packages = json.loads(text)["packages"].values()
    declared = json.loads((node_packages.PACKAGES / "package.json").read_text())
    assert wanted["dependencies"] == declared["dependencies"]
    assert all(re.fullmatch(r"[0-9.]+", each) for each in declared["dependencies"].values())
    assert len(packages) > 1
    assert all(each["integrity"].startswith("sha512-") for each in packages)
    assert node_packages.without_hosts(json.loads(text)) == json.loads(text)
