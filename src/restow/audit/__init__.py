"""The audit log: records each request and its outcome, one line of JSON for each stage.

    policy_file -> policy      which requests are recorded, and at which level
    ids                        the audit ID of a request
    auditor -> lines, bodies   the content of an event; `redaction`: what is never recorded
    sink -> log_file           writes events to files without blocking requests

The format is audit.k8s.io/v1 of Kubernetes.

Not here: its composition (`restow.apiserver.audit`), and any decision about a request.
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
