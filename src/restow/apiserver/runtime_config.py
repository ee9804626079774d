"""`--runtime-config` as in kube-apiserver: which built-in API versions are served.

    api/all, api/ga, api/beta, api/alpha      all versions, or those of a stage
    GROUP/VERSION, v1 or api/v1               one version of a group; v1 is the core group
    GROUP/VERSION/RESOURCE                    one resource of it

Each is `=true` or `=false`; a name without a value means true. The most specific key decides, in
the order above from weak to strong; of repeated keys the last one counts. The default is true.

A disabled version appears in no discovery or OpenAPI document, and its paths return 404. The server
still stores the resource and reads it for its own needs: nothing is removed from the store.

Not here: versions that a release does not serve at all, and custom resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from restow.apimachinery.names import version_stage
from restow.apis import internal_v1alpha1
from restow.apiserver.feature_gates import FeatureGates

if TYPE_CHECKING:
    # Not imported for `restow serve --help`.
    from restow.registry.resource import Resource

_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})
_LEGACY: Final = "api"
"""The core group before a version, and all groups before a stage."""
_ALL: Final = "all"
_STAGES: Final = (_ALL, "ga", "beta", "alpha")

Strength = Literal[0, 1, 2, 3]


class _Key(NamedTuple):
    """The selection of one key; empty parts match everything."""

    strength: Strength
    stage: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""

    def names(self, group: str, version: str, plural: str) -> bool:
        if self.strength < 2:
            return self.stage in (_ALL, version_stage(version))
        if (group, version) != (self.group, self.version):
            return False
        return not self.resource or plural == self.resource


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The enabled built-in API versions."""

    values: tuple[tuple[str, bool], ...] = ()
    """Keys as given, without duplicates, with their values."""

    def serves(self, group: str, version: str, plural: str) -> bool:
        rules = [(_parse_key(text), value) for text, value in self.values]
        found = [(key, value) for key, value in rules if key.names(group, version, plural)]
        return max(found, key=lambda rule: rule[0].strength)[1] if found else True


def parse_runtime_config(texts: Iterable[str]) -> RuntimeConfig:
    """Parse `A=true,B=false`, any number of times; the last value of a key counts. Raises
    ValueError."""
    values: dict[str, bool] = {}
    for word in (word.strip() for text in texts for word in text.split(",")):
        if not word:
            continue
        name, equals, value = (part.strip() for part in word.partition("="))
        _parse_key(name)
        if equals and value not in _TRUE | _FALSE:
            raise ValueError(
                f"--runtime-config: {name} is set to {value!r}, which is neither true nor false"
            )
        values[name] = not equals or value in _TRUE
    if values == {f"{_LEGACY}/{_ALL}": False}:
        raise ValueError(
            f"--runtime-config: {_LEGACY}/{_ALL}=false alone would serve nothing: enable"
            " some versions as well, such as v1=true"
        )
    return RuntimeConfig(tuple(values.items()))


def with_served(
    resources: Sequence[Resource], config: RuntimeConfig, gates: FeatureGates
) -> list[Resource]:
    """Reduce the resources to their enabled versions. The StorageVersion API also requires its
    feature gate.

    Raises ValueError for a key that matches nothing in the release.
    """
    for text, _ in config.values:
        _check_known(text, resources)
    return [_with_served(resource, config, gates) for resource in resources]


def _with_served(resource: Resource, config: RuntimeConfig, gates: FeatureGates) -> Resource:
    served = tuple(
        version
        for version in resource.served
        # KEP-2339 3.52: --runtime-config switches the API off
        if config.serves(resource.group, version, resource.plural)
        # KEP-2339 3.53, 3.56: the API is served only while its feature gate is on
        and (gates.storage_version_api or resource.group != internal_v1alpha1.GROUP)
    )
    # KEP-2339 3.54: an API that is not served stays in the store
    return resource if served == resource.served else replace(resource, served=served)


def _check_known(text: str, resources: Sequence[Resource]) -> None:
    key = _parse_key(text)
    if key.strength < 2:
        return
    in_group = [each for each in resources if each.group == key.group]
    if not in_group:
        raise ValueError(
            f"--runtime-config: {text} names the group {key.group!r}, which this release does not"
            " have: see kubectl api-versions"
        )
    versions = {version for each in in_group for version in each.served}
    if key.version not in versions:
        raise ValueError(
            f"--runtime-config: {text} names the version {key.version!r}, and this release serves"
            f" {', '.join(sorted(versions))} of that group"
        )
    plurals = {each.plural for each in in_group if key.version in each.served}
    if key.resource and key.resource not in plurals:
        raise ValueError(
            f"--runtime-config: {text} names the resource {key.resource!r}, and this release serves"
            f" {', '.join(sorted(plurals))} there"
        )


def _parse_key(text: str) -> _Key:
    """Parse one key. Raises ValueError if it is invalid."""
    match text.split("/"):
        case [_legacy, stage] if _legacy == _LEGACY and stage in _STAGES:
            return _Key(0 if stage == _ALL else 1, stage=stage)
        case [version] if version_stage(version):
            return _Key(2, version=version)
        case [group, version] if group and version and group != version:
            return _Key(2, group=_group(group), version=version)
        case [group, version, resource] if group and version and resource:
            return _Key(3, group=_group(group), version=version, resource=resource)
        case _:
            raise ValueError(
                f"--runtime-config: {text!r} is not one of api/all, api/ga, api/beta, api/alpha,"
                " GROUP/VERSION, GROUP/VERSION/RESOURCE, v1"
            )


def _group(text: str) -> str:
    return "" if text == _LEGACY else text
