"""Audits the dependencies without a network, as part of `make test`.

    .venv/bin/python -m tools.dependency_audit

Every package is pinned with its hashes; the installed packages are the pinned ones, and no others;
the packages for running restow have the same pins as in the lock of the tests; no version has a
known vulnerability, neither a pinned one nor the oldest that the wheel allows; every dependency has
a stated reason, and a permissive licence. `make audit` queries a service for newer vulnerabilities.

Not here: which versions are vulnerable (`tools/known_vulnerabilities.py`).
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.known_vulnerabilities import (
    ACCEPTED,
    UNKNOWN_LICENCES_ACCEPTED,
    VULNERABILITIES,
    Vulnerability,
)

ROOT: Final = Path(__file__).resolve().parent.parent
PROJECT: Final = ROOT / "pyproject.toml"
INSTALLED_LOCK: Final = "requirements.lock"
"""Lock files of `.venv`; those of tools are for environments of their own."""
RUN_LOCK: Final = "requirements-run.lock"
"""The subset that running restow needs: `make up` installs no more."""

SEEDS: Final = frozenset({"pip", "setuptools"})
"""Packages that Python installs into a new environment: they only install by hash."""

LICENCES: Final = re.compile(
    r"Apache|\bMIT\b|\bBSD|\bISC\b|\bPSF\b|Python Software Foundation|\bMPL|Mozilla|any-OSI"
)
"""Words in permissive licences: everyone may use, change and redistribute the package."""
LICENCE_CHARACTERS_MAX: Final = 100
"""Some packages put the whole text into the field for the name."""

_PIN: Final = re.compile(
    r"(?P<name>[a-z0-9-]+)(?:\[[a-z0-9, -]+\])?==(?P<version>[A-Za-z0-9.!+]+)"
    r"(?: ; (?P<marker>[A-Za-z0-9_ .'<>=!()]+?))?"
    r"(?: ?--hash=sha256:[0-9a-f]{64})+"
)
_REASON: Final = re.compile(r"# .{8,}")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock file."""

    name: str
    version: str
    marker: str = ""

    def belongs_here(self) -> bool:
        """Whether this platform and this Python need it."""
        return not self.marker or Marker(self.marker).evaluate()


def main() -> int:
    problems = list(audit())
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def audit() -> Iterator[str]:
    """All problems, a line each."""
    text = PROJECT.read_text()
    project = tomllib.loads(text)
    used: set[tuple[str, str]] = set()
    locked: dict[str, list[Pin]] = {}
    for lock in sorted(ROOT.glob("requirements*.lock")):
        pins, problems = read_lock(lock.read_text())
        locked[lock.name] = pins
        used |= {(pin.name, pin.version) for pin in pins}
        yield from (f"{lock.name}: {problem}" for problem in (*problems, *vulnerable_pins(pins)))
        if lock.name == INSTALLED_LOCK:
            found = list(distributions())
            yield from differences(pins, _versions(found), own=project["project"]["name"])
            yield from unknown_licences(found)
    yield from untested_pins(locked[RUN_LOCK], locked[INSTALLED_LOCK])
    yield from vulnerable_lower_bounds(declared(project["project"]))
    yield from without_reason(text, project)
    for name, version in ACCEPTED.keys() - used:
        yield f"tools/known_vulnerabilities.py: {name} {version} is accepted, but no longer used"


def read_lock(text: str) -> tuple[list[Pin], list[str]]:
    """The pins, and the lines that are not a name, version, optional extras and marker, hashes."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    pins: list[Pin] = []
    problems: list[str] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        if match := _PIN.fullmatch(line):
            pins.append(Pin(match["name"], match["version"], match["marker"] or ""))
        else:
            problems.append(f"not a pin with hashes: {line[:80]}")
    return pins, problems


def untested_pins(part: Iterable[Pin], whole: Iterable[Pin]) -> Iterator[str]:
    """Pins for running restow that differ from those of the tests, which would prove nothing."""
    tested = {pin.name: pin.version for pin in whole}
    for pin in part:
        if tested.get(pin.name) != pin.version:
            found = tested.get(pin.name, "not there")
            yield f"{RUN_LOCK}: {pin.name} {pin.version} is {found} in {INSTALLED_LOCK}: make lock"


def declared(table: Mapping[str, Any]) -> list[str]:
    """The requirements of the wheel, with all its extras."""
    extras = table.get("optional-dependencies", {}).values()
    return [*table["dependencies"], *(each for extra in extras for each in extra)]


def vulnerable_pins(
    pins: Iterable[Pin], vulnerabilities: Iterable[Vulnerability] = VULNERABILITIES
) -> Iterator[str]:
    """Pinned versions with a known vulnerability, unless they are accepted with a reason."""
    known = list(vulnerabilities)
    for pin in pins:
        if (pin.name, pin.version) not in ACCEPTED:
            yield from _vulnerable(pin.name, pin.version, known)


def vulnerable_lower_bounds(
    dependencies: Iterable[str], vulnerabilities: Iterable[Vulnerability] = VULNERABILITIES
) -> Iterator[str]:
    """Requirements of the wheel that allow a vulnerable version: the lock does not bind users."""
    known = list(vulnerabilities)
    for text in dependencies:
        requirement = Requirement(text)
        floors = [each.version for each in requirement.specifier if each.operator == ">="]
        if not floors:
            yield f"pyproject.toml: {text} has no lower bound"
        for floor in floors:
            for problem in _vulnerable(canonicalize_name(requirement.name), floor, known):
                yield f"pyproject.toml: {text} allows {problem}"


def _vulnerable(name: str, version: str, known: Iterable[Vulnerability]) -> Iterator[str]:
    for each in known:
        if each.package == name and SpecifierSet(each.versions).contains(version, prereleases=True):
            yield f"{name} {version} is vulnerable ({each.name}: {each.what}); not {each.versions}"


def differences(
    pins: Iterable[Pin], installed: Mapping[str, list[str]], *, own: str
) -> Iterator[str]:
    """Differences between the environment and the lock."""
    wanted = {pin.name: pin.version for pin in pins if pin.belongs_here()}
    for name, version in sorted(wanted.items()):
        found = installed.get(name, [])
        if [Version(each) for each in found] != [Version(version)]:
            yield f".venv: {name} should be {version} and is {', '.join(found) or 'missing'}"
    for name in sorted(installed.keys() - wanted.keys() - SEEDS - {own}):
        yield f".venv: {name} {', '.join(installed[name])} is not in {INSTALLED_LOCK}"


def _versions(found: Iterable[Distribution]) -> dict[str, list[str]]:
    versions: dict[str, list[str]] = {}
    for each in found:
        versions.setdefault(canonicalize_name(each.name), []).append(each.version)
    return versions


def unknown_licences(found: Iterable[Distribution]) -> Iterator[str]:
    """Packages whose licence is not one of the approved ones."""
    for each in found:
        name = canonicalize_name(each.name)
        licence = licence_of(each.metadata.json)
        if not LICENCES.search(licence) and name not in UNKNOWN_LICENCES_ACCEPTED:
            yield f".venv: the licence of {name} is not an approved one: {licence or 'not given'}"


def licence_of(metadata: Mapping[str, Any]) -> str:
    """The licence in a package's metadata, from the newest of three fields."""
    if expression := metadata.get("license_expression"):
        return str(expression)
    if (words := str(metadata.get("license") or "")) and len(words) <= LICENCE_CHARACTERS_MAX:
        return words
    given = (str(each) for each in metadata.get("classifier") or ())
    return ", ".join(each for each in given if each.startswith("License ::"))


def without_reason(text: str, project: Mapping[str, Any]) -> Iterator[str]:
    """Dependencies in pyproject.toml without a comment that states the reason."""
    groups = project.get("dependency-groups", {}).values()
    named = {*declared(project["project"]), *(each for group in groups for each in group)}
    for line in text.splitlines():
        match = re.match(r'\s+"([^"]+)"', line)
        if match and match[1] in named and not _REASON.search(line):
            yield f"pyproject.toml: {match[1]} has no comment with the reason"


if __name__ == "__main__":
    sys.exit(main())
