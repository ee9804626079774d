"""The audit log: records each request and its outcome, one line of JSON for each stage.

    policy_file -> policy            which requests are recorded, and at which level
    auditor -> event_parts, bodies   the content of an event
    redaction                        removes secrets from events
    sink -> log_file                 writes events to files

The format is audit.k8s.io/v1 of Kubernetes.

Not here: its composition (`restow.apiserver.audit`), audit IDs (`restow.request.audit_ids`), and
any decision about a request.
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
