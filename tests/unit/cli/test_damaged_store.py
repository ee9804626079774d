"""Commands on a damaged store: each one reports the damage and the remedy, without a traceback."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
import uvloop

from restow.cli.main import main
from tests.unit.census.stores import as_json, fill

PAGE = 4096
PODS = {
    f"/registry/pods/default/{number}": as_json("v1", "Pod", x="x" * 90) for number in range(99)
}
COMMANDS = (
    ["doctor"],
    ["backup", "a.backup"],
    ["census"],
    ["store", "info"],
    ["store", "list"],
    ["store", "put", "/a", "b"],
)


def pages(data: bytearray) -> None:
    """The bytes of every page but the first."""
    for offset in range(PAGE, len(data), PAGE):
        data[offset : offset + 500] = random.Random(offset).randbytes(500)


def header(data: bytearray) -> None:
    data[:16] = b"\0" * 16


def schema(data: bytearray) -> None:
    data[200:PAGE] = b"\xff" * (PAGE - 200)


def cut_off(data: bytearray) -> None:
    del data[len(data) // 2 :]


def key_bytes(data: bytearray) -> None:
    """A key that is not valid text, which SQLite's own checks do not detect."""
    at = data.index(b"/registry/pods/default/1")
    while at >= 0:
        data[at + 10] = 0xFF
        at = data.find(b"/registry/pods/default/1", at + 1)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in the default data directory of an empty working directory."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / ".restow"
    directory.mkdir(mode=0o700)
    uvloop.run(fill(f"sqlite:{directory / 'store.db'}", PODS))
    return directory / "store.db"


def damage(store: Path, how: Callable[[bytearray], None]) -> None:
    data = bytearray(store.read_bytes())
    how(data)
    store.write_bytes(data)


@pytest.mark.parametrize("how", [pages, header, schema, cut_off, key_bytes])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_damage_is_told(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    how: Callable[[bytearray], None],
) -> None:
    """No traceback, no success if the damage matters, and the store is named."""
    damage(store, how)
    code = main(words)
    _, err = capsys.readouterr()
    assert "Traceback" not in err
    if how is not key_bytes or words[0] == "census":
        assert code != 0
    if words[0] == "doctor":
        return
    assert not Path("a.backup").exists() or how is key_bytes
    if code:
        assert err.startswith(f"restow {words[0]}: ")
        assert "store.db" in err
        assert ".partial" not in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("how", [pages, schema, cut_off, key_bytes])
def test_doctor_finds_the_damage(
    store: Path, capsys: pytest.CaptureFixture[str], how: Callable[[bytearray], None]
) -> None:
    """It is one of the findings, with the remedy."""
    damage(store, how)
    assert main(["doctor", "--store", f"sqlite:{store}", "-o", "json"]) == 2
    findings = json.loads(capsys.readouterr().out)["findings"]
    found = findings[0]
    assert (found["check"], found["level"]) == ("store", "error")
    assert "damaged" in found["text"]
    assert "restow restore" in found["advice"]
    assert {each["check"] for each in findings} >= {"disk", "write-ahead log"}


def test_a_backup_blames_the_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage in the copy is reported as damage of the store, with only a few lines."""
    damage(store, pages)
    assert main(["backup", "a.backup"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("restow backup: ")
    assert "restore the last backup: restow restore FILE" in err
    assert len(err) < 1000


def test_meta_that_is_no_number(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A revision that is text counts as damage."""
    connection = apsw.Connection(str(store))
    connection.execute("UPDATE meta SET value = 'seven'")
    connection.close()
    for words in COMMANDS:
        assert main(words) != 0
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(12))
def test_damage_anywhere(store: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    """Whatever bytes are changed, commands end with one of their exit codes."""
    chance = random.Random(seed)

    def anywhere(data: bytearray) -> None:
        for _ in range(chance.choice((1, 20, 200))):
            at, count = chance.randrange(len(data)), chance.choice((1, 4, 100))
            data[at : at + count] = chance.randbytes(min(count, len(data) - at))

    damage(store, anywhere)
    for words in COMMANDS:
        assert main(words) in range(5)
