"""token: the subresource of a ServiceAccount that issues tokens for it (TokenRequest).

    POST  {"spec": {"audiences": […], "expirationSeconds": 3600, "boundObjectRef": {…}}}

Nothing is stored: the token is signed, and valid until it expires or its bound object is deleted.
A client that may create here can act as that account, so grant this permission with care.

    400   tokens cannot be bound to objects of that type
    404   the account or the bound object does not exist
    409   they exist, but with other uids
    422   an expiration that is too short or too long, or a name that is not the account's

Not here: verification of tokens (`restow.authentication.service_accounts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from restow.apimachinery import field_errors, status
from restow.apimachinery.conversion import Converter
from restow.apimachinery.jwt import TOKEN_LENGTH_MAX
from restow.apimachinery.names import GroupKind, GroupResource, GroupVersion
from restow.apimachinery.status_error import StatusCause
from restow.authentication import service_accounts_claims as account_claims
from restow.authentication.service_accounts import AccountTrust
from restow.endpoints.handlers.create import check_namespace
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.subresource_actions import stored_object
from restow.httpserver.response import HttpResponse
from restow.kinds.kind import Kind
from restow.registry.resource import Object, Resource
from restow.registry.shapes import BuiltinShape
from restow.registry.strategy import place, timestamp
from restow.request.bodies import read_body
from restow.request.context import Context
from restow.request.parameters import is_dry_run
from restow.request.responses import respond_object

GROUP: Final = "authentication.k8s.io"
KIND: Final = "TokenRequest"
API_VERSION: Final = f"{GROUP}/v1"
SECONDS_DEFAULT: Final = 3600
SECONDS_MIN: Final = 600
SECONDS_MAX: Final = 2**32
WARN_ONLY_SECONDS: Final = 3607
"""The expiration that clients request for pods whose program may not reload its token."""
EXTENDED_SECONDS: Final = 365 * 24 * 3600
TEXT_SHOWN_MAX: Final = 512
ISSUED_ANNOTATION: Final = "authentication.kubernetes.io/issued-credential-id"

_GROUP_KIND: Final = GroupKind(GROUP, KIND)
_BINDABLE: Final = ("Pod", "Secret", "Node")
_KEPT_METADATA: Final = ("name", "generateName", "namespace", "labels", "annotations")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """Limits of the validity of tokens."""

    seconds_max: int = SECONDS_MAX
    """A longer expiration is shortened to this, with a warning."""
    extends: bool = False
    """Whether tokens of pods that request an hour and 7 seconds are valid for a year. Kubernetes
    does that for programs that read their token once; off by default here, as no pods run."""


class TokenRequestHandler:
    """The handler: call it with a server and a request."""

    def __init__(self, trust: AccountTrust, limits: TokenLimits) -> None:
        self._trust = trust
        self._limits = limits
        self._resource = _token_requests()

    async def __call__(self, server: Server, context: Context) -> HttpResponse:
        dry_run = is_dry_run(context.info)
        accounts, info = resource_of(context), context.info
        obj = await self._read(server, context)
        await check_namespace(server, accounts, info.namespace, info.name)
        asked = server.admission.for_request(context, "CREATE")
        if asked is not None:
            obj = await asked.mutate(obj, None, is_dry_run=dry_run)
        account = await stored_object(server, accounts, info.namespace, info.name)
        request = self._completed(context, obj, account)
        if asked is not None:
            await asked.review(request, None, is_dry_run=dry_run)
        bound = await _bound(server, context, request["spec"]["boundObjectRef"])
        request["status"] = self._issue(server, context, request, bound)
        return respond_object(context, 201, request)

    async def _read(self, server: Server, context: Context) -> Object:
        """Decode the body; errors name the kind TokenRequest."""
        hosted, context.resource = context.resource, self._resource
        try:
            return await read_body(server.store, server.offload, context, self._resource)
        finally:
            context.resource = hosted

    def _completed(self, context: Context, obj: Object, account: Object) -> Object:
        """A request with all defaults filled in. Raises 400, 409 or 422."""
        info, sent = context.info, obj["metadata"]
        if sent.get("name") and sent["name"] != info.name:
            why = "must match the service account name if specified"
            cause = field_errors.invalid("metadata.name", sent["name"], why)
            raise status.invalid(_GROUP_KIND, info.name, [cause])
        place(self._resource.kind, sent, info.namespace)
        uid = account["metadata"]["uid"]
        if sent.get("uid") and sent["uid"] != uid:
            raise status.conflict(
                GroupResource(GROUP, KIND),
                info.name,
                why=f"the UID in the token request ({sent['uid']}) does not match the UID of the"
                f" service account ({uid})",
            )
        spec = obj.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        seconds = SECONDS_DEFAULT if seconds is None else seconds
        _check_seconds(seconds)
        metadata = {name: sent[name] for name in _KEPT_METADATA if sent.get(name)}
        metadata |= {"name": info.name, "uid": uid}
        return {
            "kind": KIND,
            "apiVersion": API_VERSION,
            "metadata": metadata,
            "spec": {
                "audiences": spec.get("audiences") or list(self._trust.audiences),
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
        }

    def _issue(
        self, server: Server, context: Context, request: Object, bound: dict[str, dict[str, str]]
    ) -> dict[str, Any]:
        """Sign a token, and set its expiration in the status of the request."""
        spec, metadata = request["spec"], request["metadata"]
        wanted: int = spec["expirationSeconds"]
        if wanted > self._limits.seconds_max:
            spec["expirationSeconds"] = self._limits.seconds_max
            context.warn(
                f"requested expiration of {wanted} seconds shortened to"
                f" {self._limits.seconds_max} seconds"
            )
        seconds, warn_after = spec["expirationSeconds"], None
        now = server.runtime.clock.wall()
        epoch_seconds = int(now.timestamp())
        if (
            self._limits.extends
            and "pod" in bound
            and seconds == WARN_ONLY_SECONDS
            and set(spec["audiences"]) <= set(self._trust.audiences)
        ):
            seconds, warn_after = EXTENDED_SECONDS, epoch_seconds + seconds
        token_id = server.runtime.ids.uid()
        token = self._trust.signing.sign(
            account_claims.make(
                issuer=self._trust.issuers[0],
                namespace=metadata["namespace"],
                account=(metadata["name"], metadata["uid"]),
                audiences=spec["audiences"],
                bound=bound,
                token_id=token_id,
                now=epoch_seconds,
                expires=epoch_seconds + seconds,
                warn_after=warn_after,
            )
        )
        if len(token) > TOKEN_LENGTH_MAX:  # authentication would reject it
            cause = field_errors.too_long("spec.audiences", length_max=TOKEN_LENGTH_MAX)
            raise status.invalid(_GROUP_KIND, "", [cause])
        context.annotate(ISSUED_ANNOTATION, account_claims.credential_id(token_id))
        metadata["creationTimestamp"] = timestamp(now)
        until = now + timedelta(seconds=spec["expirationSeconds"])
        return {"token": token, "expirationTimestamp": timestamp(until)}


def _check_seconds(seconds: int) -> None:
    why = ""
    if seconds < SECONDS_MIN:
        why = "may not specify a duration less than 10 minutes"
    elif seconds > SECONDS_MAX:
        why = "may not specify a duration larger than 2^32 seconds"
    if why:
        cause: StatusCause = field_errors.invalid("spec.expirationSeconds", seconds, why)
        raise status.invalid(_GROUP_KIND, "", [cause])


async def _bound(
    server: Server, context: Context, reference: dict[str, Any] | None
) -> dict[str, dict[str, str]]:
    """The claims of the bound object. Raises 400, 404 or 409."""
    if reference is None:
        return {}
    kind, api_version = reference.get("kind") or "", reference.get("apiVersion") or ""
    group, version = GroupVersion.parse(api_version) if api_version else ("", "")
    resource = server.catalog.of_kind("", kind) if kind in _BINDABLE and not group else None
    if resource is None:
        raise status.bad_request(
            f"cannot bind token to object of type {group}/{version}, Kind={kind}"[:TEXT_SHOWN_MAX]
        )
    name = reference.get("name") or ""
    if not name:
        raise status.bad_request("Name parameter required.")
    obj = await stored_object(server, resource, context.info.namespace, name)
    uid, spec = obj["metadata"]["uid"], obj.get("spec") or {}
    if kind == "Pod" and (spec.get("serviceAccountName") or "") != context.info.name:
        raise status.bad_request(
            f'cannot bind token for serviceaccount "{context.info.name}" to pod running with'
            " different serviceaccount name."
        )
    if reference.get("uid") and reference["uid"] != uid:
        raise status.conflict(
            GroupResource("", kind),
            name,
            why=f"the UID in the bound object reference ({reference['uid']}) does not match the"
            " UID in record. The object might have been deleted and then recreated",
        )
    bound = {kind.lower(): {"name": name, "uid": uid}}
    if kind == "Pod" and spec.get("nodeName"):
        bound["node"] = await _node(server, spec["nodeName"])
    return bound


async def _node(server: Server, name: str) -> dict[str, str]:
    """The claims of a pod's node; only its name if the node does not exist."""
    nodes = server.catalog.of_kind("", "Node")
    if nodes is not None:
        try:
            node = await stored_object(server, nodes, "", name)
        except status.NotFound:
            return {"name": name}
        return {"name": name, "uid": node["metadata"]["uid"]}
    return {"name": name}


def _token_requests() -> Resource:
    """TokenRequests as a resource, to decode them: it has no path of its own."""
    kind = Kind(
        group=GROUP,
        kind=KIND,
        plural="tokenrequests",
        singular="tokenrequest",
        versions=("v1",),
        served_versions=("v1",),
        storage_version="v1",
        verbs=("create",),
        key_prefix="tokenrequests",
        persisted=False,
    )
    converter = Converter(KIND, hub=API_VERSION, spokes={})
    return Resource(
        kind=kind,
        served=("v1",),
        decodable=(API_VERSION,),
        storage_api_version=API_VERSION,
        converter=converter,
        shape=BuiltinShape(kind, converter),
    )
