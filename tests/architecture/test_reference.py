"""The generated pages of the reference are current."""

from pathlib import Path

import pytest

from restow.cli.main import COMMANDS
from restow.kinds.builtin import all_kinds
from tools.build_reference import FOLDER, pages


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Returns the pages as the generator writes them."""
    return pages()


@pytest.mark.parametrize("name", ["apis.md", "commands.md", "metrics.md"])
def test_a_page_is_current(name: str, made: dict[str, str]) -> None:
    """The page agrees with the program."""
    assert (FOLDER / name).read_text(encoding="utf-8") == made[name], "run `make reference`"


def test_every_page_is_compared(made: dict[str, str]) -> None:
    """Each page that calls itself generated is generated."""
    generated = [page for page in FOLDER.glob("*.md") if "make reference" in _first_lines(page)]
    assert sorted(page.name for page in generated) == sorted(made)


def test_the_pages_have_all_commands_and_kinds(made: dict[str, str]) -> None:
    """The generator is complete: each command has its section, each kind its row."""
    headings = [line[3:] for line in made["commands.md"].splitlines() if line.startswith("## ")]
    assert headings == [f"restow {command.name}" for command in COMMANDS]
    rows = [line for line in made["apis.md"].splitlines() if line.startswith("| `")]
    assert len(rows) == len(list(all_kinds()))


def test_metrics_have_labels_before_anything_is_counted(made: dict[str, str]) -> None:
    """A metric without samples on a new server is listed with its labels."""
    rows = [line.split(" | ") for line in made["metrics.md"].splitlines()]
    labels = {row[0].strip("| `"): row[2] for row in rows if len(row) == 4}
    assert labels["restow_storage_version_agreement_seconds"] == "`resource`"
    assert labels["kubernetes_healthchecks_total"] == "`name`, `type`, `status`"


def _first_lines(page: Path) -> str:
    return "\n".join(page.read_text(encoding="utf-8").splitlines()[:4])
