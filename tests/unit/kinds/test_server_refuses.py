"""Rejections of each kind, by objects with one error: facts of the reference."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from restow.apimachinery.status_error import StatusError
from tests.unit.kinds.test_server_adds import CASES, Object, created, name_of

CHANGES: dict[str, list[list[Any]]] = yaml.load(
    (Path(__file__).parent / "server_refuses.yaml").read_bytes(), yaml.CSafeLoader
)
SENT = {name_of(case): case["send"] for case in CASES}
# Their defaults hide a change, so it is made to the client's object.
AS_SENT = ("Job", "Pod", "Service")


def changed(obj: Object, path: list[str | int], value: Any) -> Object:
    obj = copy.deepcopy(obj)
    holder: Any = obj
    for step in path[:-1]:
        holder = holder[step]
    if value == "ABSENT":
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return obj


@pytest.mark.parametrize("name", CHANGES)
def test_server_refuses(name: str) -> None:
    """Each change is rejected with the reason and the field of the reference."""
    good = SENT[name]
    if good["kind"] not in AS_SENT:
        good = created(good)[1]
        for given in ("uid", "creationTimestamp", "generation"):
            good["metadata"].pop(given, None)
        good.pop("status", None)
    wrong = []
    for path, value, reason, field in CHANGES[name]:
        with pytest.raises(StatusError) as raised:
            created(changed(good, path, value))
        causes = {(each.reason, each.field) for each in raised.value.causes}
        if causes != {(f"FieldValue{reason}", field)}:
            wrong.append((path, value, causes))
    assert wrong == []
