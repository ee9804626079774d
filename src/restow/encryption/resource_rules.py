"""Matches and validates the resources of an EncryptionConfiguration.

The rules and messages are those of kube-apiserver: `secrets`, `deployments.apps`, `*.apps`, `*.`
for the core group, `*.*` for all. Rejected in addition are pinned kinds, which servers read before
they have any key, and names that no resource can have.

Pure. Not here: the file (`configuration`), and keys in the store (`keyring`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from restow.apimachinery.names import GroupResource
from restow.kinds.builtin import find_kind, find_resource

EVERYTHING: Final = GroupResource("*", "*")
NAME_LENGTH_MAX: Final = 253

_MASKED: Final = (
    "using overlapping resources such as 'secrets' and '*.' in the same resource list is not"
    " allowed as they will be masked"
)
_TWICE: Final = "the same resource cannot be specified multiple times"
_STAR: Final = (
    "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
)
_EVENTS: Final = (
    "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events'"
    " instead in the config file"
)
_EXTENSIONS: Final = "'extensions' group has been removed and cannot be used for encryption"
_ACROSS: Final = "encrypting the same resource across groups is not supported"
_CAPITALS: Final = "resource name should not contain capital letters"
_NO_API: Final = "resources which do not have REST API/s cannot be encrypted"
_WITHOUT_API: Final = frozenset(
    {"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}
)
_PINNED: Final = (
    "it is never encrypted: servers use it to agree on versions and keys, and read it before they"
    " know any key"
)


def read_resource(text: str) -> GroupResource:
    """Parse a resource or a wildcard; everything after the first dot is the group."""
    resource, _, group = text.partition(".")
    return GroupResource(group, resource)


def write_resource(resource: GroupResource) -> str:
    """The text of a resource in the file."""
    return "*." if resource == GroupResource("", "*") else str(resource)


def find_mask(resource: GroupResource, earlier: Collection[GroupResource]) -> GroupResource | None:
    """The rule of an earlier block that masks this one completely."""
    for mask in (GroupResource(resource.group, "*"), EVERYTHING):
        if mask in earlier:
            return mask
    return None


def find_overlaps(texts: Sequence[str]) -> list[str]:
    """Problems of the resources of one block in combination."""
    resources = [read_resource(text) for text in texts]
    problems = []
    if len(set(resources)) < len(resources):
        problems.append(_TWICE)
    if len(resources) > 1 and any(
        one == EVERYTHING or (one.resource == "*" and one.group == other.group)
        for number, one in enumerate(resources)
        for other in (*resources[:number], *resources[number + 1 :])
    ):
        problems.append(_MASKED)
    return problems


def problem_of_resource(text: str) -> str:
    """The problem of one name; empty: none."""
    if text.lower() != text:
        return _CAPITALS
    if text == "*":
        return _STAR
    if text in _WITHOUT_API:
        return _NO_API
    if not text or len(text) > NAME_LENGTH_MAX or not _is_plain(text):
        return "it is not the name of a resource"
    group, plural = resource = read_resource(text)
    if group == "events.k8s.io":
        return _EVENTS
    if group == "extensions":
        return _EXTENSIONS
    if group == "*" and plural != "*":
        return _ACROSS
    return _problem_of_builtin(resource)


def _is_plain(text: str) -> bool:
    return text.isascii() and all(each.isalnum() or each in "-.*" for each in text)


def _problem_of_builtin(resource: GroupResource) -> str:
    kind = find_resource(*resource)
    if kind is None:
        return ""
    if kind.cohabits_with is not None:
        home = find_kind(*kind.cohabits_with)
        if home is not None and not home.pinned:
            return f"its objects are stored as {home.group_resource}: use that name instead"
    return _PINNED if kind.pinned else ""
