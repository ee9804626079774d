"""The API, the commands and the metrics match the recorded captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.captures import FOLDER, Json, all_captures, as_text

pytestmark = pytest.mark.area("golden")
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        return all_captures(tmp_path_factory.mktemp("golden"))


def test_every_capture_is_recorded(found: dict[str, Json]) -> None:
    """A capture without a file would be compared with nothing."""
    assert sorted(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_matches_its_capture(name: str, found: dict[str, Json]) -> None:
    """An intended difference is recorded with `python -m tests.golden.captures`."""
    recorded = Path(FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert as_text(found[name]).splitlines() == recorded.splitlines()
