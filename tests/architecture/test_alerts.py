"""The page about alerts: its metrics exist, and its YAML is YAML."""

import re
from pathlib import Path

import yaml

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "alerts.md").read_text()
REFERENCE = (DOCS / "reference" / "metrics.md").read_text()
METRIC = re.compile(r"\b(?:restow|apiserver|kubernetes|storage)_[a-z_]+")


def test_alerts_are_about_metrics_that_exist() -> None:
    """A name with a slip of the pen would never fire."""
    named = set(METRIC.findall(PAGE))
    assert named
    assert {name for name in named if f"`{name}`" not in REFERENCE} == set()


def test_each_alert_is_explained() -> None:
    """Rules can be read, and each has its row in the table."""
    scrape, rules = map(
        yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    )
    assert len(scrape["scrape_configs"]) == 3
    alerts = [rule["alert"] for rule in rules["groups"][0]["rules"]]
    assert alerts == re.findall(r"^\| ([A-Z][A-Za-z]+) \|", PAGE, re.MULTILINE)
