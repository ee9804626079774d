"""The audit log: who has asked for what, and how it went, one line of JSON for each step.

    policy_file -> policy      which requests, and how much of them
    ids                        one id for each request
    auditor -> lines, bodies   what is written of a request; `redaction`: what never is
    sink -> log_file           from lines to files, without holding anybody up

The form is Kubernetes' audit.k8s.io/v1. Not here: who composes it (`restow.apiserver.audit`), and
anything that decides about a request.
"""

from restow.audit.auditor import Auditor, AuditSink
from restow.audit.policy import LEVEL_NAMES, AuditPolicy, default_policy
from restow.audit.policy_file import PolicyError, parse_policy, read_policy
from restow.request.audit_ids import AuditIds

__all__ = [
    "LEVEL_NAMES",
    "AuditIds",
    "AuditPolicy",
    "AuditSink",
    "Auditor",
    "PolicyError",
    "default_policy",
    "parse_policy",
    "read_policy",
]
