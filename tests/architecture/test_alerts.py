"""Metrics in documents: each name exists, and the YAML of the alerts page is valid."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "how-to" / "alerts.md").read_text()
REFERENCE = (DOCS / "reference" / "metrics.md").read_text()
TYPES = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", REFERENCE, re.MULTILINE))
NAMES = TYPES.keys() | {
    f"{name}_{series}"
    for name, kind in TYPES.items()
    if kind == "histogram"
    for series in ("bucket", "sum", "count")
}
METRIC = re.compile(
    r"\b(?:restow|apiserver|aggregator|kubernetes|storage_migrator)_(?!asyncio|release)[a-z_]+"
)
GREP = re.compile(r"/metrics(?:\s|\\)*\| grep '(?:\^)?(\w+)")
MANUALS = sorted(
    path for place in (DOCS, ROOT / "deploy", ROOT / "examples") for path in place.rglob("*.md")
)


def test_alerts_are_about_metrics_that_exist() -> None:
    """An alert with a misspelled name never fires."""
    named = set(METRIC.findall(PAGE))
    assert named
    assert named - NAMES == set()


@pytest.mark.parametrize("manual", MANUALS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_metrics_that_exist(manual: Path) -> None:
    """Sentences and output name current metrics, and a `grep` of `/metrics` has a full name."""
    text = manual.read_text()
    assert set(METRIC.findall(text)) - NAMES == set()
    assert [name for name in GREP.findall(text) if name not in NAMES] == []


def test_each_alert_is_explained() -> None:
    """The rules can be parsed, and each has its row in the table."""
    scrape, rules = map(
        yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    )
    assert len(scrape["scrape_configs"]) == 3
    alerts = [rule["alert"] for rule in rules["groups"][0]["rules"]]
    assert alerts == re.findall(r"^\| ([A-Z][A-Za-z]+) \|", PAGE, re.MULTILINE)
