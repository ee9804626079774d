"""Fields that the server adds before an object is stored, for every kind: facts of the
reference."""

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from restow.aio import Runtime
from restow.registry.catalog import builtin_catalog
from restow.registry.resource import Resource
from restow.registry.strategy import begin_create, check, timestamp

Object = dict[str, Any]

CASES: list[Object] = yaml.load(
    (Path(__file__).parent / "server_adds.yaml").read_bytes(), yaml.CSafeLoader
)
CATALOG = builtin_catalog()
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
# Every new object gets them.
GIVEN = ("uid", "creationTimestamp", "namespace")


def name_of(case: Object) -> str:
    sent = case["send"]
    return f"{sent['apiVersion']} {sent['kind']} {sent['metadata']['name']}"


def created(sent: Object) -> tuple[Resource, Object]:
    """Returns the object as a create stores it."""
    group = sent["apiVersion"].rpartition("/")[0]
    resource = CATALOG.of_kind(group, sent["kind"])
    assert resource is not None
    obj, unknown = resource.shape.check(sent["apiVersion"], copy.deepcopy(sent))
    assert unknown == []
    obj = resource.shape.default(sent["apiVersion"], obj)
    namespace = "default" if resource.kind.namespaced else ""
    ids = Runtime.system().ids
    begin_create(resource, sent["apiVersion"], obj, namespace=namespace, ids=ids, now=NOW)
    check(resource, sent["apiVersion"], obj, None)
    return resource, obj


def added(sent: Any, got: Any) -> Any:
    """Returns the fields that were not sent, or None."""
    if isinstance(sent, dict) and isinstance(got, dict):
        found = {}
        for name, value in got.items():
            more = value if name not in sent else added(sent[name], value)
            if more is not None and more != []:
                found[name] = more
        return found or None
    if isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        pairs = enumerate(zip(sent, got, strict=True))
        return {i: more for i, (s, g) in pairs if (more := added(s, g)) is not None} or None
    return None if sent == got else got


def known(value: Any, obj: Object) -> Any:
    """Returns a value as in the cases: without fields that differ each time, and without empty
    lists."""
    if isinstance(value, dict):
        pairs = {name: known(each, obj) for name, each in value.items()}
        return {name: each for name, each in pairs.items() if each != [] and each is not None}
    if isinstance(value, list):
        return [known(each, obj) for each in value]
    return {obj["metadata"]["uid"]: "UID", timestamp(NOW): "NOW"}.get(value, value)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_server_adds(case: Object) -> None:
    """An object is stored with the additions of the reference, and no others."""
    sent = case["send"]
    resource, obj = created(sent)
    before = copy.deepcopy(obj)
    for name in GIVEN:
        obj["metadata"].pop(name, None)
    if "status" in sent and not resource.kind.create_keeps_status:
        sent = {name: value for name, value in sent.items() if name != "status"}
    assert known(added(sent, obj) or {}, before) == known(case["adds"], before)


def test_every_kind_has_a_case() -> None:
    """Every stored kind of these groups has a case."""
    have = {(c["send"]["apiVersion"].rpartition("/")[0], c["send"]["kind"]) for c in CASES}
    groups = {group for group, _ in have}
    missing = {
        (each.kind.group, each.kind.kind)
        for each in CATALOG
        if each.kind.persisted and each.kind.group in groups
    } - have
    assert missing == set()
