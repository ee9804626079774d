"""Migration requests as they are read, of either API: `migration.k8s.io` and in-tree.

    migration.k8s.io/v1alpha1           spec.resource {group, version, resource}
    storagemigration.k8s.io/v1, v1beta1 spec.resource {group, resource}

Nothing in an object is believed to have the right type. Not here: writing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from restow.api.migration_v1alpha1 import GROUP
from restow.api.resources import IN_TREE_GROUP
from restow.controllers.names import FAILED, PAUSED_ANNOTATION, PROOF_ANNOTATION, RUNNING, SUCCEEDED
from restow.controllers.times import read_time
from restow.controllers.trigger.records import record_of
from restow.controllers.trigger.values import MigrationRef, MigrationSeen, Phase
from restow.machinery.names import GroupResource, GroupVersionResource

REQUESTS: Final = (
    GroupVersionResource(GROUP, "v1alpha1", "storageversionmigrations"),
    GroupVersionResource(IN_TREE_GROUP, "v1", "storageversionmigrations"),
    GroupVersionResource(IN_TREE_GROUP, "v1beta1", "storageversionmigrations"),
)
"""Where requests are, best first; of the in-tree versions only the first that is served counts."""

Object = Mapping[str, Any]


def ref_of(request: Object) -> MigrationRef:
    metadata = mapping(request, "metadata")
    return MigrationRef(
        api_version=text(request, "apiVersion"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
    )


def resource_of(request: Object) -> GroupResource:
    """What is to be migrated; its version, if the request names one, means nothing."""
    wanted = mapping(mapping(request, "spec"), "resource")
    return GroupResource(text(wanted, "group"), text(wanted, "resource"))


def condition(request: Object, kind: str) -> Object | None:
    """The condition of a type, if it is True."""
    found = mapping(request, "status").get("conditions")
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and each.get("type") == kind and each.get("status") == "True":
            return each
    return None


def phase_of(request: Object) -> Phase:
    """As its conditions say."""
    if condition(request, FAILED) is not None:
        return Phase.FAILED
    if condition(request, SUCCEEDED) is not None:
        return Phase.SUCCEEDED
    return Phase.PENDING if condition(request, RUNNING) is None else Phase.RUNNING


def has_ended(request: Object) -> bool:
    """Whether it is as it will stay. A success of ours that nobody has proven is not."""
    match phase_of(request):
        case Phase.FAILED:
            return True
        case Phase.SUCCEEDED:
            return is_proven(request) or record_of(marks_of(request)) is None
        case _:
            return False


def is_proven(request: Object) -> bool:
    return bool(marks_of(request).get(PROOF_ANNOTATION))


def is_paused(request: Object) -> bool:
    return marks_of(request).get(PAUSED_ANNOTATION) == "true"


def is_going(request: Object) -> bool:
    """Whether it is being deleted."""
    return bool(mapping(request, "metadata").get("deletionTimestamp"))


def seen(request: Object) -> MigrationSeen:
    """What the trigger is told of a request.

    A success that nobody has proven, be it another migrator's, is still on its way: ours proves
    it.
    """
    phase = phase_of(request)
    if phase is Phase.SUCCEEDED and not is_proven(request):
        phase = Phase.RUNNING
    return MigrationSeen(
        ref=ref_of(request),
        phase=phase,
        record=record_of(marks_of(request)),
        finished_at=finished_at(request),
    )


def finished_at(request: Object) -> datetime | None:
    for kind in (FAILED, SUCCEEDED):
        found = condition(request, kind)
        if found is not None:
            moment = found.get("lastTransitionTime") or found.get("lastUpdateTime")
            return read_time(moment)
    return None


def marks_of(request: Object) -> dict[str, str]:
    """Its annotations."""
    found = mapping(mapping(request, "metadata"), "annotations")
    return {key: value for key, value in found.items() if isinstance(value, str)}


def mapping(value: Object, name: str) -> Object:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def text(value: Object, name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""
