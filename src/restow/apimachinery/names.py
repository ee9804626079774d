# (Python 3.11 has no `typing.override`.)
"""Names of kinds and resources: group, version, kind, resource, and their string forms.

All are tuples, because they are dictionary keys on the hot path, and tuples hash fastest. Tuples of
different types can be equal, so one dictionary must use one type of name.

Not here: which names exist (`restow.registry.catalog`), and names of objects (`metadata_rules`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from restow.apimachinery.errors import InvalidName

# More digits are no realistic version number.
_KUBERNETES_VERSION: Final = re.compile(
    r"v([0-9]{1,18})(?:(alpha|beta)([0-9]{1,18}))?", flags=re.ASCII
)
_STAGE_RANK: Final = {None: 0, "beta": 1, "alpha": 2}
_RANK_OF_OTHERS: Final = 3


class GroupVersion(NamedTuple):
    """An API group and version, written like `apiVersion`: `apps/v1`, or `v1` for the core
    group.
    """

    group: str
    version: str

    @classmethod
    def parse(cls, text: str) -> GroupVersion:
        """Parse an `apiVersion`; the empty string is the empty group version."""
        group, slash, version = text.rpartition("/")
        if "/" in group or (slash and not (group and version)):
            raise InvalidName(f"unexpected GroupVersion string: {text[:256]}")
        return cls(group, version)

    def __str__(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def with_kind(self, kind: str) -> GroupVersionKind:
        """Return the name of a kind in this group version."""
        return GroupVersionKind(self.group, self.version, kind)

    def with_resource(self, resource: str) -> GroupVersionResource:
        """Return the name of a resource in this group version."""
        return GroupVersionResource(self.group, self.version, resource)


class GroupResource(NamedTuple):
    """A resource of any version, written `deployments.apps`, or `pods` for the core group."""

    group: str
    resource: str

    @classmethod
    def parse(cls, text: str) -> GroupResource:
        """Parse `deployments.apps`; everything after the first dot is the group."""
        resource, dot, group = text.partition(".")
        if not resource or (dot and not group):
            raise InvalidName(f"unexpected GroupResource string: {text[:256]}")
        return cls(group, resource)

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class GroupKind(NamedTuple):
    """A kind of any version, written `Deployment.apps`, or `Pod` for the core group."""

    group: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> GroupKind:
        """Parse `Deployment.apps`; everything after the first dot is the group."""
        kind, dot, group = text.partition(".")
        if not kind or (dot and not group):
            raise InvalidName(f"unexpected GroupKind string: {text[:256]}")
        return cls(group, kind)

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class GroupVersionKind(NamedTuple):
    """A kind in one version, written `apps/v1, Kind=Deployment`."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, api_version: str, kind: str) -> GroupVersionKind:
        """Build from an object's apiVersion and kind."""
        group, version = GroupVersion.parse(api_version)
        return cls(group, version, kind)

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"

    @property
    def group_version(self) -> GroupVersion:
        return GroupVersion(self.group, self.version)

    @property
    def group_kind(self) -> GroupKind:
        return GroupKind(self.group, self.kind)

    @property
    def api_version(self) -> str:
        """The `apiVersion` of objects of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version


class GroupVersionResource(NamedTuple):
    """A resource in one version, written `apps/v1, Resource=deployments`."""

    group: str
    version: str
    resource: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Resource={self.resource}"

    @property
    def group_version(self) -> GroupVersion:
        return GroupVersion(self.group, self.version)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.resource)


def version_stage(version: str) -> str:
    """Return the stability of a version: `ga`, `beta` or `alpha`; empty for other names."""
    found = _KUBERNETES_VERSION.fullmatch(version)
    return "" if found is None else found[2] or "ga"


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return a sort key with the preferred version first: v2, v1, v1beta2, v1alpha1, others.

    Other names have no defined meaning, so they come last, in alphabetical order.
    """
    found = _KUBERNETES_VERSION.fullmatch(version)
    if found is None:
        return _RANK_OF_OTHERS, 0, 0, version
    major, stage, minor = found.groups()
    return _STAGE_RANK[stage], -int(major), -int(minor or 0), version
