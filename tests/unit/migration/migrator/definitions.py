"""A fake API server with one CRD."""

from __future__ import annotations

from typing import Any

from tests.unit.client.fake_api import FakeApi

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Definitions(FakeApi):
    """A fake API server with one CRD and its status subresource."""

    def _answer(self, sent: Any) -> Any:
        if sent.path.endswith("/status"):
            path = sent.path.removesuffix("/status")
            self._check(path, sent.body["metadata"].get("resourceVersion"))
            return self.put(path, {**self.objects[path], "status": sent.body["status"]})
        return super()._answer(sent)


def definition(*, generation: int = 3, storage: str = "v2", **status_fields: Any) -> dict[str, Any]:
    versions = [{"name": name, "storage": name == storage} for name in ("v1", "v2")]
    return {
        "metadata": {"generation": generation, "uid": "u"},
        "spec": {"versions": versions},
        "status": {"storedVersions": ["v1", "v2"], **status_fields},
    }
