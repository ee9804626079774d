"""Types that are not in the tables: old versions, and restow's own kinds.

An old version that is no longer in the tables is defined as another type with a few changed fields.
Kinds of restow are defined in full. Both have names of the usual form, and lists.

Not here: the tables themselves (`restow.kinds.types`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from restow.apimachinery.types import (
    Field,
    ListOf,
    Scalar,
    Special,
    Struct,
    StructRef,
    Type,
    UnknownType,
)
from restow.kinds.kind import type_name
from restow.kinds.types import Types, load_types

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_AUTOSCALING: Final = "io.k8s.api.autoscaling"
_BATCH: Final = "io.k8s.api.batch"
_MIGRATION: Final = "io.k8s.migration.v1alpha1"
_VOTE: Final = "io.k8s.internal.kube-apiserver.v1alpha1"
_STORAGE_MIGRATION: Final = "io.k8s.api.storagemigration"
_INTERNAL: Final = "io.k8s.api.apiserverinternal.v1alpha1"
_SCAN: Final = "dev.restow.storage.v1alpha1"
_HPA: Final = "HorizontalPodAutoscaler"


@dataclass(frozen=True, slots=True)
class Variant:
    """Another type under a new name, with some fields removed or of another type."""

    base: str
    changed: Mapping[str, Type] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()


def _ref(package: str, name: str) -> StructRef:
    return StructRef(f"{package}.{name}")


_V2: Final = f"{_AUTOSCALING}.v2"
_V2BETA1: Final = f"{_AUTOSCALING}.v2beta1"
_VARIANTS: Final[dict[str, Variant]] = {
    f"{_BATCH}.v2alpha1.CronJob": Variant(f"{_BATCH}.v1beta1.CronJob"),
    f"{_AUTOSCALING}.v2beta2.{_HPA}": Variant(f"{_V2}.{_HPA}"),
    # Its metrics have the form that is still used in the annotations of v1.
    f"{_V2BETA1}.{_HPA}": Variant(
        f"{_V2}.{_HPA}",
        {"spec": _ref(_V2BETA1, f"{_HPA}Spec"), "status": _ref(_V2BETA1, f"{_HPA}Status")},
    ),
    f"{_V2BETA1}.{_HPA}Spec": Variant(
        f"{_V2}.{_HPA}Spec",
        {"metrics": ListOf(_ref(f"{_AUTOSCALING}.v1", "MetricSpec"))},
        frozenset({"behavior"}),
    ),
    f"{_V2BETA1}.{_HPA}Status": Variant(
        f"{_V2}.{_HPA}Status",
        {"currentMetrics": ListOf(_ref(f"{_AUTOSCALING}.v1", "MetricStatus"))},
    ),
    f"{_STORAGE_MIGRATION}.v1.StorageVersionMigration": Variant(
        f"{_STORAGE_MIGRATION}.v1beta1.StorageVersionMigration"
    ),
}

_OBJECT_META: Final = Field(json="metadata", type=_ref(_META, "ObjectMeta"), omitempty=True)


def _text(json: str) -> Field:
    return Field(json=json, type=Scalar.STRING, omitempty=True)


def _number(json: str, *, pointer: bool = False) -> Field:
    return Field(json=json, type=Scalar.INT64, pointer=pointer, omitempty=True)


def _time(json: str) -> Field:
    return Field(json=json, type=Special.TIME, omitempty=True)


def _part(json: str, name: str) -> Field:
    return Field(json=json, type=_ref(_MIGRATION, name), omitempty=True)


def _rewrite_types(package: str) -> dict[str, tuple[Field, ...]]:
    """The types of the subresource `rewrite`, which migrations have in every group and version."""
    result = (
        _part("resource", "GroupResource"),
        _text("target"),
        _text("continue"),
        *(_number(name) for name in ("scanned", "rewritten", "skipped", "settled", "failedCount")),
        Field(
            json="failed",
            type=ListOf(_ref(package, "RewriteFailure")),
            omitempty=True,
            list_type="atomic",
        ),
        _text("resourceVersion"),
        _number("epoch"),
        _text("storageVersionUID"),
        Field(json="verified", type=Scalar.BOOL, omitempty=True),
    )
    return {
        f"{package}.RewriteRequest": (
            _OBJECT_META,
            _number("limit"),
            _text("continue"),
            _text("target"),
            _number("epoch", pointer=True),
        ),
        f"{package}.RewriteResult": (_OBJECT_META, *result),
        f"{package}.RewriteFailure": (_text("namespace"), _text("name"), _text("reason")),
    }


def _texts(json: str) -> Field:
    return Field(json=json, type=ListOf(Scalar.STRING), omitempty=True, list_type="set")


def _list(json: str, name: str) -> Field:
    return Field(json=json, type=ListOf(_ref(_SCAN, name)), omitempty=True, list_type="atomic")


_SCAN_TYPES: Final[dict[str, tuple[Field, ...]]] = {
    f"{_SCAN}.StorageScan": (
        _OBJECT_META,
        Field(json="spec", type=_ref(_SCAN, "StorageScanSpec"), omitempty=True),
        Field(json="status", type=_ref(_SCAN, "StorageScanStatus"), omitempty=True),
    ),
    f"{_SCAN}.StorageScanSpec": (_text("prefix"), _number("limit"), _text("continue")),
    f"{_SCAN}.StorageScanStatus": (
        *(_text(name) for name in ("resourceVersion", "continue")),
        _number("scanned"),
        _number("total", pointer=True),
        _list("counts", "StoredCount"),
        _list("contradictions", "Contradiction"),
        _list("servers", "ScannedServer"),
        _texts("unfencedServers"),
        _list("definitions", "ScannedDefinition"),
    ),
    f"{_SCAN}.StoredCount": (
        *(_text(name) for name in ("prefix", "group", "resource", "scope", "apiVersion", "kind")),
        *(_text(name) for name in ("encoding", "encryptionKey", "problem")),
        *(_number(name) for name in ("values", "firstCreateRevision")),
        _texts("examples"),
    ),
    f"{_SCAN}.Contradiction": (
        *(_text(name) for name in ("group", "resource", "apiVersion", "encryptionKey")),
        _number("values"),
        _texts("examples"),
    ),
    f"{_SCAN}.ScannedServer": (
        *(_text(name) for name in ("id", "mode", "address", "encryptionProblem")),
    ),
    f"{_SCAN}.ScannedDefinition": (_text("name"), _text("uid"), _number("createRevision")),
}
_OWN: Final[dict[str, tuple[Field, ...]]] = {
    **_SCAN_TYPES,
    f"{_MIGRATION}.StorageState": (
        _OBJECT_META,
        _part("spec", "StorageStateSpec"),
        _part("status", "StorageStateStatus"),
    ),
    f"{_MIGRATION}.StorageStateSpec": (_part("resource", "GroupResource"),),
    f"{_MIGRATION}.StorageStateStatus": (
        *(
            Field(json=name, type=ListOf(Scalar.STRING), omitempty=True, list_type="atomic")
            for name in ("persistedStorageVersionHashes", "persistedEncryptionKeys")
        ),
        _text("currentStorageVersionHash"),
        _time("lastHeartbeatTime"),
        Field(
            json="currentStorageVersionHashes",
            type=ListOf(_ref(_MIGRATION, "StorageVersionHash")),
            omitempty=True,
            patch_strategies=("merge",),
            merge_key="reporterID",
            list_type="map",
            list_keys=("reporterID",),
        ),
    ),
    f"{_MIGRATION}.StorageVersionHash": (
        Field(json="reporterID", type=Scalar.STRING),
        _text("currentStorageVersionHash"),
        _time("lastHeartbeatTime"),
    ),
    f"{_MIGRATION}.StorageVersionMigration": (
        _OBJECT_META,
        _part("spec", "StorageVersionMigrationSpec"),
        _part("status", "StorageVersionMigrationStatus"),
    ),
    f"{_MIGRATION}.StorageVersionMigrationSpec": (
        _part("resource", "GroupVersionResource"),
        _text("continueToken"),
    ),
    f"{_MIGRATION}.StorageVersionMigrationStatus": (
        Field(
            json="conditions",
            type=ListOf(_ref(_MIGRATION, "MigrationCondition")),
            omitempty=True,
            patch_strategies=("merge",),
            merge_key="type",
            list_type="map",
            list_keys=("type",),
        ),
        _part("progress", "MigrationProgress"),
        Field(
            json="failedObjects",
            type=ListOf(_ref(_MIGRATION, "FailedObject")),
            omitempty=True,
            list_type="atomic",
        ),
    ),
    f"{_MIGRATION}.MigrationProgress": (
        *(_number(name) for name in ("pass", "scanned", "rewritten", "unchanged", "failed")),
        # These two are absent if they are not known.
        _number("remaining", pointer=True),
        Field(json="objectsPerSecond", type=Scalar.FLOAT64, omitempty=True),
        _number("secondsLeft", pointer=True),
    ),
    f"{_MIGRATION}.FailedObject": (
        *(_text(name) for name in ("namespace", "name", "reason", "message")),
    ),
    f"{_MIGRATION}.MigrationCondition": (
        Field(json="type", type=Scalar.STRING),
        Field(json="status", type=Scalar.STRING),
        _time("lastUpdateTime"),
        _text("reason"),
        _text("message"),
    ),
    f"{_VOTE}.StorageVersion": (
        _OBJECT_META,
        _text("selectedVersion"),
        Field(
            json="candidateVersions",
            type=ListOf(_ref(_VOTE, "VersionCandidate")),
            omitempty=True,
            patch_strategies=("merge",),
            merge_key="apiServerID",
            list_type="map",
            list_keys=("apiServerID",),
        ),
    ),
    f"{_VOTE}.VersionCandidate": (_text("apiServerID"), _text("preferredVersion")),
    # The subresource `report`, where a server with its own store reports its storage version.
    f"{_INTERNAL}.StorageVersionReport": (
        _OBJECT_META,
        *(_text(name) for name in ("serverID", "store")),
        _number("sequence"),
        *(_text(name) for name in ("objectKind", "encodingVersion")),
        *(_texts(name) for name in ("decodableVersions", "servedVersions")),
        _text("encryptionKey"),
        _texts("readableEncryptionKeys"),
        _text("preferredEncryptionKey"),
    ),
    **_rewrite_types(_MIGRATION),
    **_rewrite_types(f"{_STORAGE_MIGRATION}.v1"),
    **_rewrite_types(f"{_STORAGE_MIGRATION}.v1beta1"),
    f"{_MIGRATION}.GroupResource": (_text("group"), _text("resource")),
    f"{_MIGRATION}.GroupVersionResource": (_text("group"), _text("version"), _text("resource")),
}

_TYPE_META: Final = (_text("kind"), _text("apiVersion"))


class DerivedTypes:
    """The tables, and the types of this module."""

    def __init__(self, tables: Types) -> None:
        self._tables = tables
        self._structs: dict[str, Struct] = {}

    def struct(self, name: str) -> Struct:
        """Return the struct of an OpenAPI definition name; raises UnknownType if there is none."""
        found = self._structs.get(name)
        if found is None:
            found = self._derive(name)
            if found is None:
                return self._tables.struct(name)
            self._structs[name] = found
        return found

    def of_kind(self, group: str, version: str, kind: str) -> Struct | None:
        """Return the struct of a kind in one version, of its list, or of its options."""
        found = self._tables.of_kind(group, version, kind)
        if found is not None:
            return found
        try:
            found = self.struct(type_name(group, version, kind))
        except UnknownType:
            return None
        return found if found.is_kind else None

    def _derive(self, name: str) -> Struct | None:
        if name in _OWN:
            is_kind = _OBJECT_META in _OWN[name]
            fields = _TYPE_META + _OWN[name] if is_kind else _OWN[name]
            return Struct(name=name, fields=fields, table=self, is_kind=is_kind)
        variant = _VARIANTS.get(name)
        if variant is not None:
            return self._vary(name, variant)
        item = name.removesuffix("List")
        if item != name and (item in _VARIANTS or item in _OWN) and self.struct(item).is_kind:
            return self._list_of(item)
        return None

    def _vary(self, name: str, variant: Variant) -> Struct:
        base = self._tables.struct(variant.base)
        fields = tuple(
            replace(each, type=variant.changed.get(each.json, each.type))
            for each in base.fields
            if each.json not in variant.removed
        )
        return Struct(
            name=name, fields=fields, table=self, embedded=base.embedded, is_kind=base.is_kind
        )

    def _list_of(self, item: str) -> Struct:
        fields = (
            *_TYPE_META,
            Field(json="metadata", type=_ref(_META, "ListMeta"), omitempty=True, number=1),
            Field(json="items", type=ListOf(StructRef(item)), number=2),
        )
        return Struct(name=f"{item}List", fields=fields, table=self, is_kind=True)


@cache
def all_types() -> DerivedTypes:
    """Return the types of every built-in kind in every version."""
    return DerivedTypes(load_types())
