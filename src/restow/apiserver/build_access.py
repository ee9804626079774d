"""Build stage of access control: authentication, authorization, admission, audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from restow.admission.escalation import EscalationCheck
from restow.admission.owner_references import OwnerCheck
from restow.apimachinery.rbac import PolicyRule
from restow.apiserver.admission import AdmissionParts, OwnPlugins
from restow.apiserver.audit import Audit
from restow.apiserver.authentication import Authenticators
from restow.apiserver.build_inputs import AccessOptions, EndpointOptions, Foundation
from restow.apiserver.build_registry import Registry
from restow.apiserver.ended_sessions import EndedSessions
from restow.apiserver.service_accounts import ServiceAccounts, make_service_accounts
from restow.audit import Auditor
from restow.authentication import Authentication, SessionAuthenticator, Sessions
from restow.authentication.service_accounts import Identified
from restow.authorization import Authorizer
from restow.authorization.rbac import Rbac
from restow.controllers.bootstrap_roles import default_objects
from restow.endpoints.handlers.token_review import TokenReviewer
from restow.request.context import User
from restow.request.request_info import RequestInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The parts that decide about requests."""

    authentication: Authentication
    sessions: Sessions
    ended_sessions: EndedSessions
    continue_key: bytes
    """Signs continue tokens."""
    service_accounts: ServiceAccounts | None
    authorizer: Authorizer
    rbac: Rbac | None
    """The RBAC authorizer, if one is used."""
    reviewer: ServerAccessReviewer
    admission: AdmissionParts
    auditor: Auditor | None


@dataclass(frozen=True, slots=True)
class ServerAccessReviewer:
    """Evaluates reviews (such as SubjectAccessReview) with the server's own decisions."""

    authorizer: Authorizer
    tokens: TokenReviewer
    rbac: Rbac | None

    def allows(self, user: User, info: RequestInfo) -> bool:
        return self.authorizer.allows(user, info)

    def reason(self, user: User, info: RequestInfo) -> str:
        return self.authorizer.reason(user, info)

    def rules_of(self, user: User, namespace: str) -> tuple[list[PolicyRule], str]:
        return ([], "") if self.rbac is None else self.rbac.rules_of(user, namespace)

    def identify(self, token: str, audiences: Sequence[str]) -> Identified | None:
        return self.tokens.identify(token, audiences)


def build_access(
    foundation: Foundation,
    registry: Registry,
    options: AccessOptions,
    endpoint_options: EndpointOptions,
) -> Access:
    store, catalog, runtime = registry.store, foundation.catalog, foundation.runtime
    accounts, delegated = options.accounts, options.auth_parts
    service_accounts = None
    if accounts is not None:
        service_accounts = make_service_accounts(
            accounts, store, catalog, clock=runtime.clock, address=endpoint_options.address
        )
    authenticators = options.authenticators
    if authenticators is None:
        authenticators = Authenticators.plain(options.secrets.tokens, runtime)
    ended_sessions = EndedSessions(foundation.storage, runtime)
    sessions = authenticators.sessions(
        options.secrets.continue_key, is_ended=ended_sessions.contains
    )
    rbac: Rbac | None = None
    if delegated is None:
        rbac = Rbac(store, catalog, runtime, defaults=default_objects())
        authentication = authenticators.chain(
            accounts=[] if service_accounts is None else [service_accounts.authenticator],
            sessions=[SessionAuthenticator(sessions)],
        )
        authorizer: Authorizer = rbac
    else:
        authentication, authorizer = delegated.authentication, delegated.authorizer
    tokens = TokenReviewer(
        user_of=authentication.user_of,
        accounts=None if service_accounts is None else service_accounts.authenticator,
        audiences=() if accounts is None else accounts.trust.audiences,
    )
    aggregation = endpoint_options.aggregation
    admission = AdmissionParts(
        store,
        catalog,
        runtime,
        authorizer=authorizer,
        plugins=_plugins(foundation, options, rbac),
        offload=registry.offload,
        allows_loopback=aggregation is not None and aggregation.allows_loopback,
    )
    admission.publish(foundation.metrics)
    return Access(
        authentication=authentication,
        sessions=sessions,
        ended_sessions=ended_sessions,
        continue_key=options.secrets.continue_key,
        service_accounts=service_accounts,
        authorizer=authorizer,
        rbac=rbac,
        reviewer=ServerAccessReviewer(authorizer, tokens, rbac),
        admission=admission,
        auditor=_build_auditor(foundation, options.audit, authorizer),
    )


def _build_auditor(
    foundation: Foundation, audit: Audit | None, authorizer: Authorizer
) -> Auditor | None:
    """Build the auditor, which records the authorization decision and its reason."""
    if audit is None:
        return None
    auditor = Auditor(audit.policy, audit.sink, foundation.runtime.clock, reason=authorizer.reason)
    audit.publish(auditor, foundation.metrics)
    return auditor


def _plugins(foundation: Foundation, options: AccessOptions, rbac: Rbac | None) -> OwnPlugins:
    """Return the plug-ins. An aggregated server does not host the kinds of owners, and the main
    servers enforce RBAC, so it has no checks for either."""
    if rbac is None:
        return OwnPlugins(own=options.admission)
    return OwnPlugins(
        checks=(EscalationCheck(rbac),),
        object_checks=(OwnerCheck(foundation.catalog, rbac),),
        own=options.admission,
        gives_accounts=options.accounts is not None,
    )
