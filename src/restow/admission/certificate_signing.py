"""Admission of CertificateSigningRequests: the server records the requester, and approving or
signing a request requires a right on the signer that it names.

    create      records the requester; refuses `system:masters` for the client signer
    approval    requires the verb `approve` on the signer
    status      requires the verb `sign` on it if a certificate or a condition changes

A right on a signer is a right on the resource `signers` of `certificates.k8s.io`, by the name of
the signer or by its domain: `example.com/*`.

Not here: validation of a request (`restow.kinds.validation`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from restow.admission.review import Attributes, WriteOf, forbidden
from restow.apimachinery.certificate_signing_requests import decoded, parse_request
from restow.authorization.authorizer import Authorizer
from restow.registry.resource import Object
from restow.request.request_info import RequestInfo, access_question

GROUP: Final = "certificates.k8s.io"
REQUESTS: Final = "certificatesigningrequests"
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
MASTERS_GROUP: Final = "system:masters"

_SIGNERS: Final = "signers"
_VERBS: Final = {"approval": "approve", "status": "sign"}
_REQUESTER: Final = frozenset({"username", "uid", "groups", "extra"})


class RequesterStamp:
    """Record the requester in the spec of a new request. Satisfies `Mutation`. It runs last, so
    that no other plug-in can change the requester."""

    def concerns(self, write: WriteOf) -> bool:
        return _is_ours(write) and write.operation == "CREATE" and not write.subresource

    async def mutate(self, attributes: Attributes) -> Object | None:
        obj, user = attributes.obj, attributes.user
        assert obj is not None
        spec = {name: value for name, value in _part(obj, "spec").items() if name not in _REQUESTER}
        spec["username"] = user.name
        if user.uid:
            spec["uid"] = user.uid
        if user.groups:
            spec["groups"] = list(user.groups)
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra}
        return {**obj, "spec": spec}


class SignerPermissions:
    """Refuse approvals, signatures and subjects that the user may not make. Satisfies
    `Admission`."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def concerns(self, write: WriteOf) -> bool:
        if not _is_ours(write):
            return False
        if write.operation == "CREATE":
            return not write.subresource
        return write.operation == "UPDATE" and write.subresource in _VERBS

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        obj, old = attributes.obj, attributes.old
        assert obj is not None
        if old is None:
            _check_subject(attributes, _part(obj, "spec"))
        elif attributes.subresource == "approval" or _changes_certificate_status(obj, old):
            # Use the stored signer name: a write of a subresource does not change it.
            self._check_right(attributes, str(_part(old, "spec").get("signerName") or ""))
        return None

    def _check_right(self, attributes: Attributes, signer: str) -> None:
        verb = _VERBS[attributes.subresource]
        domain = signer.partition("/")[0]
        for name in (signer, f"{domain}/*"):
            if self._authorizer.allows(attributes.user, _question(verb, name)):
                return
        raise forbidden(
            attributes, f'user not permitted to {verb} requests with signerName "{signer}"'
        )


def _check_subject(attributes: Attributes, spec: dict[str, Any]) -> None:
    if spec.get("signerName") != CLIENT_SIGNER:
        return
    try:
        found = parse_request(decoded(spec.get("request")))
    except ValueError as error:
        raise forbidden(attributes, f"failed to parse CSR: {error}") from None
    if MASTERS_GROUP in found.organizations:
        raise forbidden(
            attributes, f"use of {CLIENT_SIGNER} signer with {MASTERS_GROUP} group is not allowed"
        )


def _changes_certificate_status(obj: Object, old: Object) -> bool:
    """Return whether a status update changes the certificate or the conditions."""
    now, before = _part(obj, "status"), _part(old, "status")
    return any(
        (now.get(name) or None) != (before.get(name) or None)
        for name in ("certificate", "conditions")
    )


def _question(verb: str, name: str) -> RequestInfo:
    return access_question(verb, group=GROUP, resource=_SIGNERS, name=name)


def _is_ours(write: WriteOf) -> bool:
    return write.resource.plural == REQUESTS and write.resource.group == GROUP


def _part(obj: Object, name: str) -> dict[str, Any]:
    found = obj.get(name)
    return found if isinstance(found, dict) else {}
