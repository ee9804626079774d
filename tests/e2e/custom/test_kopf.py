"""A kopf operator on custom resources: it finds a kind that is defined after it was started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from restow.testing.server_process import ServerProcess
from tests.custom_definitions import small
from tests.custom_definitions.building import CRDS, Family
from tests.e2e.custom import kopf_operator
from tests.e2e.kopf_process import eventually, operator_of

MERGE: Final = {"Content-Type": "application/merge-patch+json"}


def operated() -> Family:
    """The kind of the operator; kopf notes its progress in the status."""
    family = small.widget(kopf_operator.GROUP, status=True)
    schema = family.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"]["x-kubernetes-preserve-unknown-fields"] = True
    return family


def test_operator(server: ServerProcess, tmp_path: Path) -> None:
    """It is told of a definition that comes later, serves its objects, and outlives them."""
    family, log = operated(), tmp_path / "kopf.log"

    def status() -> Any:
        code, answer = server.get(family.path("a"))
        return json.loads(answer).get("status", {}) if code == 200 else {}

    with operator_of(server, kopf_operator.__file__, log):
        eventually(lambda: "Unresolved resources" in log.read_text(), log)
        assert server.request("POST", CRDS, family.definition)[0] == 201
        eventually(lambda: server.get(family.path())[0] == 200, log)
        assert server.request("POST", family.path(), family.good[0])[0] == 201
        eventually(lambda: status().get("phase") == "made grey", log)
        patch = {"spec": {"size": 5}}
        assert server.request("PATCH", family.path("a"), patch, headers=MERGE)[0] == 200
        eventually(lambda: status().get("size") == 5, log)
        assert "Traceback" not in log.read_text()
        assert server.request("DELETE", f"{CRDS}/{family.name}")[0] == 200
        eventually(lambda: server.get(f"{CRDS}/{family.name}")[0] == 404, log)
