"""Validation of object metadata, as causes of a 422.

`check_types` must run first: it rejects metadata whose members have wrong types, so that all later
code can rely on the types.

Not here: fields that the server sets (uid, times, managed fields), and rules of single kinds.
"""

from __future__ import annotations

from typing import Any, Final

from restow.aio import Ids
from restow.apimachinery import field_errors
from restow.apimachinery.errors import InvalidName
from restow.apimachinery.field_errors import Causes
from restow.apimachinery.name_formats import (
    NameRule,
    dns_label_problem,
    label_value_problem,
    prefix_problem,
    qualified_name_problem,
)
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.status import BadRequest, StatusCause, bad_request

ANNOTATIONS_SIZE_MAX: Final = 256 * 1024
# With five more characters such a name is still a label.
GENERATED_PREFIX_LENGTH_MAX: Final = 58
STANDARD_FINALIZERS: Final = frozenset({"foregroundDeletion", "orphan", "kubernetes"})
# Events are short-lived, so they must not own objects.
_NEVER_OWNERS: Final = frozenset({("v1", "Event")})

_STRINGS: Final = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "selfLink",
)
_STRING_NAMES: Final = frozenset(_STRINGS)
_ONLY_STRINGS: Final = {str}
_ONLY_OBJECTS: Final = {dict}
_INTEGERS: Final = ("generation", "deletionGracePeriodSeconds")
_STRING_MAPS: Final = ("labels", "annotations")
_OBJECT_LISTS: Final = ("ownerReferences", "managedFields")
_OWNER_STRINGS: Final = ("apiVersion", "kind", "name", "uid")
_OWNER_FLAGS: Final = ("controller", "blockOwnerDeletion")


def check_types(metadata: Any) -> None:
    """Reject metadata with a member of a wrong type; null counts as absent."""
    if metadata is None:
        return
    if type(metadata) is not dict:
        raise _wrong_type("metadata", metadata, "object")
    if _is_plain(metadata):
        return
    get = metadata.get
    for name in _STRINGS:
        value = get(name)
        if value is not None and type(value) is not str:
            raise _wrong_type(f"metadata.{name}", value, "string")
    for name in _INTEGERS:
        value = get(name)
        if value is not None and type(value) is not int:
            raise _wrong_type(f"metadata.{name}", value, "integer")
    for name in _STRING_MAPS:
        if (value := get(name)) is not None:
            _check_text_map(f"metadata.{name}", value)
    if (value := get("finalizers")) is not None:
        _check_list("metadata.finalizers", value, item_type=str, wanted="string")
    for name in _OBJECT_LISTS:
        if (value := get(name)) is not None:
            _check_list(f"metadata.{name}", value, item_type=dict, wanted="object")
    for index, owner in enumerate(get("ownerReferences") or ()):
        _check_owner_types(f"metadata.ownerReferences[{index}]", owner)


def _is_plain(metadata: dict[str, Any]) -> bool:
    """Report whether metadata has only members of the most common types, all valid: nearly
    always.
    """
    for name, value in metadata.items():
        if type(value) is str:
            if name not in _STRING_NAMES:
                return False
        elif name in _STRING_MAPS:
            if type(value) is not dict or not _is_text_map(value):
                return False
        elif type(value) is int:
            if name not in _INTEGERS:
                return False
        elif name != "managedFields" or type(value) is not list or not _are_objects(value):
            return False
    return True


def _are_objects(value: list[Any]) -> bool:
    return not value or set(map(type, value)) == _ONLY_OBJECTS


def _is_text_map(value: dict[str, Any]) -> bool:
    return not value or set(map(type, value.values())) == _ONLY_STRINGS


def _check_text_map(field: str, value: Any) -> None:
    if type(value) is not dict:
        raise _wrong_type(field, value, "object")
    for key, member in value.items():
        if type(member) is not str and member is not None:
            raise _wrong_type(f"{field}.{key[:256]}", member, "string")


def _check_list(field: str, value: Any, *, item_type: type, wanted: str) -> None:
    if type(value) is not list:
        raise _wrong_type(field, value, "array")
    for index, item in enumerate(value):
        if type(item) is not item_type:
            raise _wrong_type(f"{field}[{index}]", item, wanted)


def _check_owner_types(field: str, owner: dict[str, Any]) -> None:
    for name in _OWNER_STRINGS:
        value = owner.get(name)
        if value is not None and type(value) is not str:
            raise _wrong_type(f"{field}.{name}", value, "string")
    for name in _OWNER_FLAGS:
        value = owner.get(name)
        if value is not None and type(value) is not bool:
            raise _wrong_type(f"{field}.{name}", value, "boolean")


def _wrong_type(field: str, value: Any, wanted: str) -> BadRequest:
    found = {
        type(None): "null",
        bool: "boolean",
        int: "number",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }.get(type(value), type(value).__name__)
    return bad_request(f"cannot read {found} as {wanted}: field {field}")


def generated_name(prefix: str, ids: Ids) -> str:
    """Return a random name with the prefix of `generateName`; it may already exist."""
    return prefix[:GENERATED_PREFIX_LENGTH_MAX] + ids.suffix()


def metadata_problems(
    metadata: dict[str, Any],
    *,
    name_rule: NameRule,
    is_namespaced: bool,
    bare_finalizers_allowed: bool = False,
) -> list[StatusCause]:
    """Return all errors in an object's metadata, on create and update.

    Custom resources may have finalizers without a domain; built-in kinds only the standard ones.
    """
    causes = Causes()
    get = metadata.get
    _check_names(causes, metadata, name_rule)
    _check_namespace(causes, get("namespace") or "", is_namespaced=is_namespaced)
    if (generation := get("generation")) and generation < 0:
        causes.invalid("metadata.generation", generation, "must be greater than or equal to 0")
    if labels := get("labels"):
        causes += label_problems(labels)
    if annotations := get("annotations"):
        causes += annotation_problems(annotations)
    if owners := get("ownerReferences"):
        causes += owner_problems(owners)
    if finalizers := get("finalizers"):
        causes += finalizer_problems(finalizers, bare_allowed=bare_finalizers_allowed)
    return causes


def _check_names(causes: Causes, metadata: dict[str, Any], rule: NameRule) -> None:
    prefix, name = metadata.get("generateName"), metadata.get("name")
    if prefix and (problem := prefix_problem(prefix, rule)):
        causes.invalid("metadata.generateName", prefix, problem)
    if not name:
        causes.required("metadata.name", "name or generateName is required")
    elif problem := rule(name):
        causes.invalid("metadata.name", name, problem)


def _check_namespace(causes: Causes, namespace: str, *, is_namespaced: bool) -> None:
    if not is_namespaced:
        if namespace:
            causes.forbidden("metadata.namespace", "not allowed on this type")
    elif not namespace:
        causes.required("metadata.namespace")
    elif problem := dns_label_problem(namespace):
        causes.invalid("metadata.namespace", namespace, problem)


def label_problems(labels: dict[str, str], field: str = "metadata.labels") -> list[StatusCause]:
    """Check keys and values of labels, or of a field that is compared with labels."""
    causes = Causes()
    for key, value in labels.items():
        if problem := qualified_name_problem(key):
            causes.invalid(field, key, problem)
        if value and (problem := label_value_problem(value)):
            causes.invalid(field, value, problem)
    return causes


def annotation_problems(
    annotations: dict[str, str], field: str = "metadata.annotations"
) -> list[StatusCause]:
    """Check the keys of annotations, ignoring case, and the total size."""
    causes = Causes()
    size = 0
    for key, value in annotations.items():
        if problem := qualified_name_problem(key.lower()):
            causes.invalid(field, key, problem)
        size += _byte_length(key) + _byte_length(value or "")
    if size > ANNOTATIONS_SIZE_MAX:
        causes.too_long(field, length_max=ANNOTATIONS_SIZE_MAX)
    return causes


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def finalizer_problems(finalizers: list[str], *, bare_allowed: bool = False) -> list[StatusCause]:
    """Check finalizers: they need a domain, unless they are standard ones."""
    causes = Causes()
    field = "metadata.finalizers"
    for index, name in enumerate(finalizers):
        if problem := qualified_name_problem(name):
            causes.invalid(field, name, problem)
        elif "/" not in name and name not in STANDARD_FINALIZERS and not bare_allowed:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            causes.invalid(f"{field}[{index}]", name, why)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        why = "finalizer foregroundDeletion and orphan cannot be both set"
        causes.invalid(field, finalizers, why)
    return causes


def owner_problems(owners: list[dict[str, Any]]) -> list[StatusCause]:
    """Check owner references: each is complete, and at most one is a controller."""
    causes = Causes()
    controllers = []
    for owner in owners:
        # Kubernetes does not report the index.
        causes += _owner_problems(owner, "metadata.ownerReferences")
        if owner.get("controller") is True:
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        why = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        causes.invalid("metadata.ownerReferences", owners, why)
    return causes


def _owner_problems(owner: dict[str, Any], field: str) -> list[StatusCause]:
    causes = Causes()
    api_version = owner.get("apiVersion") or ""
    try:
        version = GroupVersion.parse(api_version).version
    except InvalidName as error:
        causes.invalid(f"{field}.apiVersion", api_version, str(error))
    else:
        if not version:
            causes.invalid(f"{field}.apiVersion", api_version, "version must not be empty")
    for name in ("kind", "name", "uid"):
        if not owner.get(name):
            causes.invalid(f"{field}.{name}", "", "must not be empty")
    if (api_version, owner.get("kind")) in _NEVER_OWNERS:
        why = f"{api_version}, Kind={owner['kind']} is disallowed from being an owner"
        causes.invalid(field, owner, why)
    return causes


def metadata_update_problems(new: dict[str, Any], old: dict[str, Any]) -> list[StatusCause]:
    """Report changes of immutable fields; fields that clients may not write have the old values."""
    causes = Causes()
    for name in ("name", "namespace", "uid", "creationTimestamp"):
        if new.get(name) != old.get(name):
            causes.immutable(f"metadata.{name}", new.get(name))
    if old.get("deletionTimestamp"):
        added = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
        if added:
            names = ", ".join(sorted(map(field_errors.shown, added)))
            why = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers: {names}"
            )
            causes.forbidden("metadata.finalizers", why)
    if (new.get("generation") or 0) < (old.get("generation") or 0):
        causes.invalid("metadata.generation", new.get("generation"), "must not be decremented")
    return causes


def resource_version_missing() -> StatusCause:
    """An update has no resourceVersion, but its kind requires one."""
    return field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
