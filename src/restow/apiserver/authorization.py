"""What a main server decides by: RBAC over its own store, and what comes with it.

Composition only. An aggregated server has none of it: it asks the main servers.
"""

from __future__ import annotations

from restow.admission import Admission
from restow.admission.escalation import EscalationCheck
from restow.aio import Runtime
from restow.authorization.rbac import Rbac
from restow.controllers.bootstrap_roles import default_objects
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore


def make_authorization(store: ResourceStore, catalog: Catalog, runtime: Runtime) -> Rbac:
    """The authorizer of a cluster, which knows its roles once it is started. Close it."""
    return Rbac(store, catalog, runtime, defaults=default_objects())


def authorization_admission(rbac: Rbac) -> Admission:
    """What is to be asked about each write of a role or binding."""
    return EscalationCheck(rbac)
