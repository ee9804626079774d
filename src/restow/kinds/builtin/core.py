"""The core group, and the events of `events.k8s.io`, which live in the same store.

Only rows. What a column means is said in `restow.kinds.definitions`.
"""

from __future__ import annotations

from typing import Final

from restow.kinds.definitions import (
    SCALE,
    STATUS,
    VERBS_ALL,
    SelectableField,
    Subresource,
    declare,
    selectable,
)
from restow.machinery.names import GroupKind

_FINALIZE: Final = Subresource(name="finalize", verbs=("update",))
_TOKEN: Final = Subresource(
    name="token",
    verbs=("create",),
    kind="TokenRequest",
    group="authentication.k8s.io",
    version="v1",
)
# A namespace is emptied by a controller, one at a time, so there is no deleting of many.
_NAMESPACE_VERBS: Final = tuple(verb for verb in VERBS_ALL if verb != "deletecollection")

_REFERENCE_FIELDS: Final = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)
_EVENT_SOURCE: Final = SelectableField("source", ("source", "component"), ("reportingComponent",))
_EVENT_FIELDS: Final = (
    *selectable(*(f"involvedObject.{name}" for name in _REFERENCE_FIELDS)),
    *selectable("reason", "reportingComponent", "type"),
    _EVENT_SOURCE,
)
# The newer group has names of its own, and takes the older ones too.
_REGARDING_FIELDS: Final = (
    *(SelectableField(f"regarding.{name}", ("involvedObject", name)) for name in _REFERENCE_FIELDS),
    SelectableField("reportingController", ("reportingComponent",)),
)
_POD_FIELDS: Final = (
    *selectable(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.nominatedNodeName",
        "status.phase",
        "status.podIP",
    ),
    SelectableField("spec.hostNetwork", ("spec", "hostNetwork"), absent="false"),
)

KINDS: Final = (
    declare("", "ConfigMap", "configmaps", short="cm", required=True),
    declare(
        "",
        "Endpoints",
        "endpoints",
        short="ep",
        key_prefix="services/endpoints",
        create_on_update=True,
        required=True,
    ),
    declare(
        "",
        "Event",
        "events",
        short="ev",
        selectable=_EVENT_FIELDS,
        create_on_update=True,
        required=True,
    ),
    declare(
        "",
        "LimitRange",
        "limitranges",
        short="limits",
        create_on_update=True,
        behaviour_missing=True,
    ),
    declare(
        "",
        "Namespace",
        "namespaces",
        short="ns",
        namespaced=False,
        verbs=_NAMESPACE_VERBS,
        subresources=(STATUS, _FINALIZE),
        selectable=selectable("status.phase"),
        returns_deleted=True,
        name_rule="label",
        required=True,
    ),
    declare(
        "",
        "Node",
        "nodes",
        short="no",
        namespaced=False,
        key_prefix="minions",
        subresources=(STATUS,),
        selectable=(
            SelectableField("spec.unschedulable", ("spec", "unschedulable"), absent="false"),
        ),
    ),
    declare(
        "",
        "PersistentVolume",
        "persistentvolumes",
        short="pv",
        namespaced=False,
        subresources=(STATUS,),
        returns_deleted=True,
    ),
    declare(
        "",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        short="pvc",
        subresources=(STATUS,),
        returns_deleted=True,
    ),
    declare(
        "",
        "Pod",
        "pods",
        short="po",
        categories="all",
        subresources=(STATUS,),
        selectable=_POD_FIELDS,
        tracks_generation=True,
        returns_deleted=True,
    ),
    declare("", "PodTemplate", "podtemplates", tracks_generation=True, returns_deleted=True),
    declare(
        "",
        "ReplicationController",
        "replicationcontrollers",
        short="rc",
        categories="all",
        key_prefix="controllers",
        subresources=(STATUS, SCALE),
        selectable=(SelectableField("status.replicas", ("status", "replicas"), absent="0"),),
        tracks_generation=True,
    ),
    declare(
        "",
        "ResourceQuota",
        "resourcequotas",
        short="quota",
        subresources=(STATUS,),
        returns_deleted=True,
    ),
    declare("", "Secret", "secrets", selectable=selectable("type"), required=True),
    declare(
        "",
        "Service",
        "services",
        short="svc",
        categories="all",
        key_prefix="services/specs",
        subresources=(STATUS,),
        selectable=selectable("spec.clusterIP", "spec.type"),
        create_on_update=True,
        returns_deleted=True,
        name_rule="label-1035",
        required=True,
    ),
    declare(
        "",
        "ServiceAccount",
        "serviceaccounts",
        short="sa",
        subresources=(_TOKEN,),
        returns_deleted=True,
        required=True,
    ),
    declare(
        "events.k8s.io",
        "Event",
        "events",
        versions="v1 v1beta1",
        served="v1",
        short="ev",
        cohabits_with=GroupKind("", "Event"),
        selectable=(*_EVENT_FIELDS, *_REGARDING_FIELDS),
        create_on_update=True,
        required=True,
    ),
)
