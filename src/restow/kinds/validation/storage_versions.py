"""Validation of the kinds through which servers agree on storage versions.

The messages for StorageVersion are those of kube-apiserver.

Not here: write access to them (`restow.registry.ownership`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.name_formats import (
    LABEL_LENGTH_MAX,
    SUBDOMAIN_LENGTH_MAX,
    dns_1035_label_problem,
    qualified_name_problem,
    subdomain_problem,
)
from restow.kinds.validation.fields import Causes, Object, check_length, listed, part, require

_EMPTY: Final = "must be non-empty"
# kube-apiserver has two spaces after the first comma.
_LABEL_EXAMPLE: Final = (
    " (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_API_VERSION_RULE: Final = (
    "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters "
    "or '-', start with an alphabetic character, and end with an alphanumeric character"
    f"{_LABEL_EXAMPLE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"
)
_NO_AGREEMENT: Final = (
    "should be nil if servers do not agree on the same encoding version, or if there is no server "
    "reporting the supported versions yet"
)
_STATE_NAME_RULE: Final = 'must be spec.resource.resource+"."+spec.resource.group'
HASHES_MAX: Final = 1024
"""Limit of listed hashes: other controllers append one at each change, without deduplication."""
REPORTERS_MAX: Final = 256
HASH_LENGTH_MAX: Final = 253
KEY_LENGTH_MAX: Final = 2048
"""Limit of the id of an encryption key; a plug-in may use key names of a kilobyte."""
REPORTER_LENGTH_MAX: Final = 1024


def validate_storage_version(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a StorageVersion (`internal.apiserver.k8s.io`): name on create, status on update."""
    if old is None:
        _name_causes(causes, new, ("group", "resource"))
        return
    status = part(new, "status")
    if status != part(old, "status"):
        _status_causes(causes, status)


def validate_vote(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a vote of `kube-apiserver.internal.k8s.io` on the version to store."""
    if old is None:
        # KEP-1201 0.2: validate the three parts of the name
        _name_causes(causes, new, ("group", "version", "resource"))
    selected = new.get("selectedVersion") or ""
    if not selected:
        causes.required("selectedVersion", "a version is always selected")
    else:
        _check_api_version(causes, "selectedVersion", selected)
    seen: set[str] = set()
    for field, candidate in listed(new, "candidateVersions", "candidateVersions"):
        _check_server(causes, field, candidate, seen)
        preferred = candidate.get("preferredVersion") or ""
        _check_api_version(causes, f"{field}.preferredVersion", preferred)


def validate_storage_state(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a StorageState (`migration.k8s.io`): its name is its resource, and is immutable."""
    plural, group = _resource_of(new)
    if old is not None:
        status = part(new, "status")
        if status != part(old, "status"):
            _state_status_causes(causes, status)
        if (plural, group) != _resource_of(old):
            causes.immutable("spec.resource", part(new, "spec", "resource"))
        return
    if not plural:
        causes.required("spec.resource.resource")
        return
    for why in _label_problems(plural):
        causes.invalid("spec.resource.resource", plural, why)
    for why in _subdomain_problems(group) if group else ():
        causes.invalid("spec.resource.group", group, why)
    wanted = f"{plural}.{group}" if group else plural
    name = part(new, "metadata").get("name")
    # KEP-2343 4.2: the name is that of the resource
    if not causes and name and name != wanted:
        causes.invalid("metadata.name", name, f"{_STATE_NAME_RULE}: {wanted}")


def _state_status_causes(causes: Causes, status: Object) -> None:
    """Validate number and length of hashes and keys; their values have no meaning to a server."""
    for name, count_max in (
        ("persistedStorageVersionHashes", HASHES_MAX),
        ("persistedEncryptionKeys", HASHES_MAX),
        ("currentStorageVersionHashes", REPORTERS_MAX),
    ):
        count = len(status.get(name) or ())
        if count > count_max:
            causes.too_many(f"status.{name}", count=count, count_max=count_max)
    for name, length_max in (
        ("persistedStorageVersionHashes", HASH_LENGTH_MAX),
        ("persistedEncryptionKeys", KEY_LENGTH_MAX),
    ):
        for index, text in enumerate(_texts(status, name)):
            if len(text) > length_max:
                place = f"status.{name}[{index}]"
                causes.too_long(place, length_max=length_max)
    current = ("currentStorageVersionHash",)
    check_length(causes, status, field="status", names=current, length_max=HASH_LENGTH_MAX)
    seen: set[str] = set()
    reports = "currentStorageVersionHashes"
    for field, report in listed(status, reports, f"status.{reports}"):
        # KEP-2343 4.28: it is required
        require(causes, report, field=field, names=("reporterID",))
        reporter = report.get("reporterID") or ""
        if reporter in seen and reporter:
            causes.duplicate(f"{field}.reporterID", reporter)
        seen.add(reporter)
        check_length(
            causes, report, field=field, names=("reporterID",), length_max=REPORTER_LENGTH_MAX
        )
        check_length(causes, report, field=field, names=current, length_max=HASH_LENGTH_MAX)


def _resource_of(state: Object) -> tuple[str, str]:
    resource = part(state, "spec", "resource")
    return resource.get("resource") or "", resource.get("group") or ""


def _name_causes(causes: Causes, new: Object, segments: tuple[str, ...]) -> None:
    """Validate a name of segments between dots; only the group, the first, may contain dots."""
    name = part(new, "metadata").get("name") or ""
    if not name:
        return  # validation of the metadata reports it
    texts = name.rsplit(".", len(segments) - 1)
    if len(texts) != len(segments):
        form = ".".join(f"<{each}>" for each in segments)
        causes.invalid("metadata.name", name, f"name must be in the form of {form}")
        return
    for segment, text in zip(segments, texts, strict=True):
        whys = _subdomain_problems(text) if segment == "group" else _label_problems(text)
        causes += [
            errors.invalid("metadata.name", name, f"the {segment} segment {why}") for why in whys
        ]


def _status_causes(causes: Causes, status: Object) -> None:
    seen: set[str] = set()
    for field, entry in listed(status, "storageVersions", "status.storageVersions"):
        _check_server(causes, field, entry, seen)
        _check_versions(causes, field, entry)
    _check_common_version(causes, status)
    _check_conditions(causes, status)


def _check_server(causes: Causes, field: str, entry: Object, seen: set[str]) -> None:
    """Require one entry per server."""
    server = entry.get("apiServerID") or ""
    causes.once(f"{field}.apiServerID", server, seen)
    for why in _subdomain_problems(server):
        causes.invalid(f"{field}.apiServerID", server, why)


def _check_versions(causes: Causes, field: str, entry: Object) -> None:
    """Require that a server can decode the versions that it writes and serves."""
    encoding = entry.get("encodingVersion") or ""
    decodable, served = _texts(entry, "decodableVersions"), _texts(entry, "servedVersions")
    _check_api_version(causes, f"{field}.encodingVersion", encoding)
    for index, version in enumerate(decodable):
        _check_api_version(causes, f"{field}.decodableVersions[{index}]", version)
    # KEP-2339 3.11: reject an encoding version that is not decodable
    if encoding not in decodable:
        why = f"decodableVersions must include encodingVersion {encoding}"
        value = entry.get("decodableVersions")
        causes.invalid(f"{field}.decodableVersions", value, why)
    for index, version in enumerate(served):
        place = f"{field}.servedVersions[{index}]"
        _check_api_version(causes, place, version)
        # KEP-2339 3.12: reject a served version that is not decodable
        if version not in decodable:
            why = (
                f"individual served version : {version} must be included in "
                f"decodableVersions : [{' '.join(decodable)}]"
            )
            causes.invalid(place, version, why)


def _check_common_version(causes: Causes, status: Object) -> None:
    entries = listed(status, "storageVersions", "")
    found = {entry.get("encodingVersion") or "" for _, entry in entries}
    common = found.pop() if len(found) == 1 else None
    given = status.get("commonEncodingVersion")
    if given == common:
        return
    if common is None:
        why = _NO_AGREEMENT
    elif given is None:
        why = f"the common encoding version is {common}"
    else:
        why = f"the actual common encoding version is {common}"
    causes.invalid("status.commonEncodingVersion", given, why)


def _check_conditions(causes: Causes, status: Object) -> None:
    """Validate conditions; the field paths lack `conditions`, as in kube-apiserver."""
    seen: dict[str, int] = {}
    for index, (_, condition) in enumerate(listed(status, "conditions", "")):
        field = f"status[{index}]"
        kind = condition.get("type") or ""
        if kind in seen:
            why = (
                "the type of the condition is not unique, it also appears in "
                f"conditions[{seen[kind]}]"
            )
            causes.invalid(f"{field}.type", kind, why)
        seen[kind] = index
        for name in ("type", "status"):
            if problem := qualified_name_problem(condition.get(name) or ""):
                causes.invalid(f"{field}.{name}", kind, problem)
        # KEP-2339 3.15: require reason and message
        for name in ("reason", "message"):
            if not condition.get(name):
                causes.required(f"{field}.{name}", f"{name} cannot be empty")


def _check_api_version(causes: Causes, field: str, text: str) -> None:
    problems = _api_version_problems(text)
    if problems:
        causes.invalid(field, text, ",".join(problems))


def _api_version_problems(text: str) -> list[str]:
    *groups, version = text.split("/")
    if len(groups) > 1:
        return [_API_VERSION_RULE]
    problems: list[str] = []
    for group in groups:
        problems += [
            f"group part: {why}" for why in (_subdomain_problems(group) if group else [_EMPTY])
        ]
    problems += [
        f"version part: {why}" for why in (_label_problems(version) if version else [_EMPTY])
    ]
    return problems


def _subdomain_problems(text: str) -> list[str]:
    if len(text) > SUBDOMAIN_LENGTH_MAX:
        return [f"must be no more than {SUBDOMAIN_LENGTH_MAX} characters"]
    problem = subdomain_problem(text)
    return [] if problem is None else [problem]


def _label_problems(text: str) -> list[str]:
    if len(text) > LABEL_LENGTH_MAX:
        return [f"must be no more than {LABEL_LENGTH_MAX} characters"]
    problem = dns_1035_label_problem(text)
    return [] if problem is None else [problem]


def _texts(obj: Object, name: str) -> list[Any]:
    found = obj.get(name)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
