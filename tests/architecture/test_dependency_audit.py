"""The dependency audit: the current dependencies pass, and each kind of defect is found."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tools.dependency_audit import (
    LICENCES,
    PROJECT,
    Pin,
    audit,
    differences,
    licence_of,
    read_lock,
    untested_pins,
    vulnerable_lower_bounds,
    vulnerable_pins,
    without_reason,
)
from tools.known_vulnerabilities import ACCEPTED, VULNERABILITIES, Vulnerability

HASH = "--hash=sha256:" + "0" * 64
WEAK = (Vulnerability("pyyaml", ">=5,<5.4", "CVE-0", "it is bad"),)


def test_the_dependencies_pass() -> None:
    """Pinned, installed and declared dependencies pass the audit: a step of every test run."""
    assert list(audit()) == []


def test_pins() -> None:
    """A pin has a name, one version, optionally a marker, and hashes; comments are ignored."""
    first = f"attrs==1.0 \\\n    {HASH} \\\n    {HASH}\n"
    second = f"b==2 ; python_version < '3' \\\n    {HASH}\n"
    text = f"# made by\n{first}{second}"
    assert read_lock(text) == ([Pin("attrs", "1.0"), Pin("b", "2", "python_version < '3'")], [])


@pytest.mark.parametrize(
    "line",
    [
        "attrs==1.0",
        f"attrs>=1.0 {HASH}",
        f"attrs {HASH}",
        f"-e . {HASH}",
        f"attrs==1.0 --hash=md5:{'0' * 32}",
        f"attrs @ https://example.org/attrs.whl {HASH}",
        "--index-url https://example.org/simple",
    ],
)
def test_invalid_pins_are_found(line: str) -> None:
    """Without a version, without a hash, with a URL: each is rejected."""
    pins, problems = read_lock(line + "\n")
    assert pins == []
    assert len(problems) == 1


def test_the_environment_is_compared_with_the_lock() -> None:
    """Missing, another version, duplicate, undeclared: each is found; seed packages and markers are
    not."""
    pins = [Pin("a", "1.0"), Pin("b", "2.0"), Pin("c", "3.0"), Pin("w", "1", "os_name == 'nt'")]
    well = {"a": ["1.0.0"], "b": ["2.0"], "c": ["3"], "pip": ["1"], "restow": ["0"]}
    assert list(differences(pins, well, own="restow")) == []
    ill = {"a": ["1.1"], "b": ["2.0", "2.0"], "d": ["4"], "restow": ["0"]}
    assert list(differences(pins, ill, own="restow")) == [
        ".venv: a should be 1.0 and is 1.1",
        ".venv: b should be 2.0 and is 2.0, 2.0",
        ".venv: c should be 3.0 and is missing",
        ".venv: d 4 is not in requirements.lock",
    ]


def test_the_lock_for_running_is_a_part_of_the_lock_of_the_tests() -> None:
    """Another version, and a package that the tests lack: both are found."""
    whole = [Pin("a", "1"), Pin("b", "2")]
    assert list(untested_pins([Pin("a", "1")], whole)) == []
    assert list(untested_pins([Pin("b", "3"), Pin("c", "4")], whole)) == [
        "requirements-run.lock: b 3 is 2 in requirements.lock: make lock",
        "requirements-run.lock: c 4 is not there in requirements.lock: make lock",
    ]


def test_vulnerable_versions_are_found() -> None:
    """A pinned version in a vulnerable range is found, and a lower bound that allows one."""
    assert list(vulnerable_pins([Pin("pyyaml", "6.0"), Pin("other", "5.3")], WEAK)) == []
    assert list(vulnerable_pins([Pin("pyyaml", "5.3.1")], WEAK)) == [
        "pyyaml 5.3.1 is vulnerable (CVE-0: it is bad); not >=5,<5.4"
    ]
    assert list(vulnerable_lower_bounds(["PyYAML>=5.4,<7"], WEAK)) == []
    assert len(list(vulnerable_lower_bounds(["PyYAML>=5.3"], WEAK))) == 1
    assert list(vulnerable_lower_bounds(["PyYAML"], WEAK)) == [
        "pyproject.toml: PyYAML has no lower bound"
    ]


def test_the_table_is_well_formed() -> None:
    """Ranges are valid, names are canonical, and each vulnerability is listed once."""
    for each in VULNERABILITIES:
        assert SpecifierSet(each.versions)
        assert each.package == canonicalize_name(each.package)
        assert re.fullmatch(r"CVE-\d{4}-\d{4,}|WAL-reset|etcd #\d+", each.name), each.name
    assert len({each.name for each in VULNERABILITIES}) == len(VULNERABILITIES)
    accepted = [Pin(name, version) for name, version in ACCEPTED]
    assert all(len(reason) > 20 for reason in ACCEPTED.values())
    assert list(vulnerable_pins(accepted)) == []


def test_reasons() -> None:
    """A dependency without a comment is found: of the wheel, of an extra and of a group."""
    text = PROJECT.read_text()
    assert list(without_reason(text, tomllib.loads(text))) == []
    bare = re.sub(r'("(?:apsw|orjson|ruff)[^"]*",).*', r"\1", text)
    assert len(list(without_reason(bare, tomllib.loads(bare)))) == 3


def test_licences() -> None:
    """The expression counts before the words, these before classifiers; a long text is no name."""
    assert licence_of({"license_expression": "MIT", "license": "GPL"}) == "MIT"
    assert licence_of({"license": "Apache 2.0"}) == "Apache 2.0"
    known = "License :: OSI Approved :: BSD License"
    assert licence_of({"license": "x" * 500, "classifier": ["Topic :: x", known]}) == known
    assert licence_of({}) == ""
    for strange in ("GPL-3.0-only", "LGPL", "AGPL", "proprietary", "", "PERMITTED"):
        assert not LICENCES.search(strange)
