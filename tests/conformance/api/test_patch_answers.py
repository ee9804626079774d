"""Patches with the recorded answers of Kubernetes 1.36: restow's are the same.

`patch_answers.json` has three objects and some hundred patches of each type. For each patch it has
the code, and the members of the new object that changed; in a list, `= 2` is the item that was at
index 2 before. Where that server returned a 500, restow returns 400 or 422.

Not here: the semantics of patches (`tests/unit/apimachinery`), and defaults, which are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.api.servers import NS
from tests.support.api_client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiClient

Changes = dict[str, Any]

RECORDED: Final = json.loads((Path(__file__).parent / "patch_answers.json").read_text())
FORMS: Final = {"strategic": STRATEGIC_PATCH, "merge": MERGE_PATCH, "json": JSON_PATCH}
PLACES: Final = {kind: f"{NS}/{kind.lower()}s" for kind in RECORDED["objects"]}
REASONS: Final = {400: "BadRequest", 409: "Conflict", 422: "Invalid"}
# Fields that servers set, with differing values.
FILLED_IN: Final = frozenset(
    {
        *("clusterIP", "clusterIPs", "creationTimestamp", "defaultMode", "dnsPolicy"),
        *("generation", "imagePullPolicy", "internalTrafficPolicy", "ipFamilies"),
        *("ipFamilyPolicy", "managedFields", "namespace", "resourceVersion", "restartPolicy"),
        *("schedulerName", "securityContext", "sessionAffinity", "status"),
        *("terminationGracePeriodSeconds", "terminationMessagePath", "terminationMessagePolicy"),
    }
)


def stripped(value: Any) -> Any:
    """Returns the value without fields set by servers, and without empty ones."""
    if isinstance(value, list):
        return [stripped(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: stripped(member) for key, member in value.items() if key not in FILLED_IN}
    return {key: member for key, member in kept.items() if member not in (None, {}, [])}


def changes(before: Any, after: Any, path: str = "") -> Changes:
    """Returns the changed members by path; lists are compared as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: Changes = {}
        for key in before.keys() | after.keys():
            place = path + "/" + key.replace("/", "~1")
            found |= changes(before.get(key), after.get(key), place)
        return found
    if before == after:
        return {}
    if isinstance(after, list) and isinstance(before, list) and isinstance(before[0], dict):
        after = [f"= {before.index(item)}" if item in before else item for item in after]
    return {path: after}


async def answer(api: ApiClient, kind: str, form: str, patch: Any) -> tuple[int, str, Any]:
    """Returns code and reason of a dry-run patch, and its result."""
    target = f"{PLACES[kind]}/a?dryRun=All"
    reply = await api.patch(target, json.dumps(patch).encode(), FORMS[form])
    return reply.status, "" if reply.status == 200 else reply.reason, reply.json


@pytest.mark.parametrize("form", FORMS)
async def test_answers(api: ApiClient, form: str) -> None:
    """Every recorded patch gets the recorded code, and results in the recorded object."""
    before = {}
    for kind, obj in RECORDED["objects"].items():
        made = await api.post(PLACES[kind], obj)
        assert made.status == 201, made.message
        before[kind] = stripped(made.json)
    wrong = []
    for kind, of_form, patch, code, changed in RECORDED["answers"]:
        if of_form != form:
            continue
        status, reason, body = await answer(api, kind, form, patch)
        codes = (400, 422) if code == 500 else (code,)
        got = changes(before[kind], stripped(body)) if status == 200 else None
        if status not in codes or reason != REASONS.get(status, "") or got != changed:
            wrong.append((kind, patch, (code, changed), (status, reason, got or body)))
    assert wrong == []
