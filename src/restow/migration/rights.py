"""The permissions of the controllers: each right, which controller needs it, and why.

One table with three uses: the check at start, which lists missing rights; the manifests in
`deploy/`, which grant exactly these; and the test that compares both with the requests sent.

Pure except for `missing_rights`, which sends SelfSubjectAccessReviews.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status_error import StatusError
from restow.apis.coordination_v1 import GROUP as COORDINATION
from restow.client import ApiClient, ConnectionFailed
from restow.migration.names import MIGRATOR_LEASE, TRIGGER_LEASE

REVIEWS: Final = GroupVersionResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
IN_FLIGHT_MAX: Final = 8
ANY: Final = "*"
OWN: Final = "own"
"""Placeholder for the namespace of the leases."""

Who = str
"""`trigger`, `migrator` or `both`; `install` is only for `--install`."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Verbs on a resource."""

    group: str
    resource: str
    """With its subresource, as in a role: `storagestates/status`."""
    verbs: tuple[str, ...]
    who: Who
    why: str
    namespace: str = ""
    """The namespace; empty for the whole cluster."""
    names: tuple[str, ...] = ()
    """Names of the objects; empty for all. A create cannot be restricted to names."""
    is_needed: bool = True
    """Whether the controllers cannot run without it. Others are checked only if it is served."""


def _row(text: str, why: str, **more: Any) -> Right:
    """A right, from `WHO VERBS RESOURCE.GROUP` as in a role."""
    who, verbs, name = text.split()
    resource, _, group = name.partition(".")
    return Right(
        group=group, resource=resource, verbs=tuple(verbs.split(",")), who=who, why=why, **more
    )


RIGHTS: Final = (
    _row(
        "trigger get,list,watch,create,patch storagestates.migration.k8s.io",
        "maintains StorageStates; the patch is for its own annotation",
    ),
    _row(
        "trigger update storagestates/status.migration.k8s.io",
        "writes the hashes and the heartbeat",
    ),
    _row("both get,list,watch storageversionmigrations.migration.k8s.io", "reads migrations"),
    _row(
        "trigger create,delete storageversionmigrations.migration.k8s.io",
        "creates migrations, and deletes those that are obsolete",
    ),
    _row(
        "migrator patch storageversionmigrations.migration.k8s.io",
        "writes position and proof, in annotations and spec.continueToken",
    ),
    _row(
        "migrator patch storageversionmigrations/status.migration.k8s.io",
        "writes conditions, progress, failed objects",
    ),
    _row(
        "migrator create storageversionmigrations/rewrite.migration.k8s.io",
        "has a restow server rewrite a page",
        is_needed=False,
    ),
    _row(
        "both get,list,watch storageversionmigrations.storagemigration.k8s.io",
        "reads migrations of Kubernetes' own API",
        is_needed=False,
    ),
    _row(
        "trigger create,delete storageversionmigrations.storagemigration.k8s.io",
        "creates and deletes migrations where only that API is served",
        is_needed=False,
    ),
    _row(
        "migrator patch storageversionmigrations.storagemigration.k8s.io",
        "writes position and proof, in annotations",
        is_needed=False,
    ),
    _row(
        "migrator patch storageversionmigrations/status.storagemigration.k8s.io",
        "writes conditions",
        is_needed=False,
    ),
    _row(
        "migrator create storageversionmigrations/rewrite.storagemigration.k8s.io",
        "has a restow server rewrite a page",
        is_needed=False,
    ),
    _row(
        "both get,list,watch storageversions.internal.apiserver.k8s.io",
        "reads whether servers agree on a version",
        is_needed=False,
    ),
    _row(
        "both get customresourcedefinitions.apiextensions.k8s.io",
        "reads the storedVersions of CRDs",
        is_needed=False,
    ),
    _row(
        "migrator update customresourcedefinitions/status.apiextensions.k8s.io",
        "removes versions from status.storedVersions after migrations",
        is_needed=False,
    ),
    _row(
        "migrator get apiservices.apiregistration.k8s.io",
        "skips resources of aggregated servers without storage versions",
        is_needed=False,
    ),
    # An operator may grant it for some resources only.
    _row(
        "migrator get,list,patch,update *.*",
        "lists objects to migrate, and rewrites them unchanged",
        is_needed=False,
    ),
    _row(
        "trigger list endpointslices.discovery.k8s.io",
        "reads server addresses where storage versions are not reported",
        namespace="default",
        is_needed=False,
    ),
    _row(
        "trigger get endpoints",
        "reads server addresses on older servers",
        namespace="default",
        names=("kubernetes",),
        is_needed=False,
    ),
    _row("both create leases.coordination.k8s.io", "leader election", namespace=OWN),
    _row(
        "trigger get,update leases.coordination.k8s.io",
        "leader election",
        namespace=OWN,
        names=(TRIGGER_LEASE,),
    ),
    _row(
        "migrator get,update leases.coordination.k8s.io",
        "leader election",
        namespace=OWN,
        names=(MIGRATOR_LEASE,),
    ),
    _row(
        "both create,patch events",
        "writes Events on starts, results and failures",
        namespace="default",
        is_needed=False,
    ),
    _row(
        "install get,create,update customresourcedefinitions.apiextensions.k8s.io",
        "installs the CRDs of migration.k8s.io",
    ),
)


def rights_of(parts: Iterable[str], *, is_elected: bool) -> list[Right]:
    """Return the rights that these controllers need."""
    wanted = {*parts, "both"}
    return [
        each for each in RIGHTS if each.who in wanted and (is_elected or each.group != COORDINATION)
    ]


class Missing(NamedTuple):
    """A right that this user lacks, or some verbs of it."""

    text: str
    """Verbs, resource, namespace, and the reason."""
    is_needed: bool


async def missing_rights(
    client: ApiClient, rights: Iterable[Right], *, namespace: str, served: frozenset[str]
) -> list[Missing]:
    """Return the rights that this user lacks, by SelfSubjectAccessReviews.

    `served` are the resources that the server has, as `storagestates/status.migration.k8s.io`. A
    review that fails counts as allowed.
    """
    places = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def ask(right: Right) -> Missing | None:
        async with places:
            refused = [
                verb
                for verb in right.verbs
                if not await _is_allowed(client, right, verb, namespace=namespace)
            ]
        text = _words(right, refused, namespace=namespace)
        return Missing(text, right.is_needed) if refused else None

    async with asyncio.TaskGroup() as group:
        answers = [
            group.create_task(ask(right))
            for right in rights
            if right.is_needed or right.group == ANY or _name(right) in served
        ]
    return [found for each in answers if (found := each.result()) is not None]


async def _is_allowed(client: ApiClient, right: Right, verb: str, *, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    for name in right.names or ("",):
        attributes: dict[str, Any] = {
            "verb": verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": _place(right, namespace),
            "name": name,
        }
        body = {
            "apiVersion": f"{REVIEWS.group}/{REVIEWS.version}",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }
        try:
            answer = await client.create(REVIEWS, body)
        except (StatusError, ConnectionFailed) as error:
            logger.info("cannot check whether %s %s is allowed: %s", verb, resource, error)
            return True
        status = answer.get("status")
        if not (isinstance(status, dict) and status.get("allowed") is True):
            return False
    return True


def _place(right: Right, namespace: str) -> str:
    return namespace if right.namespace == OWN else right.namespace


def _name(right: Right) -> str:
    return f"{right.resource}.{right.group}" if right.group else right.resource


def _words(right: Right, verbs: Iterable[str], *, namespace: str) -> str:
    name = _name(right)
    if right.group == ANY:
        name = "all resources (or only those to migrate)"
    if right.names:
        name += f" {', '.join(right.names)}"
    place = f" in namespace {where}" if (where := _place(right, namespace)) else ""
    return f"{', '.join(verbs)} {name}{place}: {right.why}"
