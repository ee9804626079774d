"""The words of `restow serve` that are about the audit log."""

from __future__ import annotations

import argparse
from pathlib import Path

from restow.apiserver.audit_options import (
    BACKUPS_DEFAULT,
    BACKUPS_MAX,
    DAYS_MAX,
    MEGABYTES_DEFAULT,
    MEGABYTES_MAX,
    AuditOptions,
)
from restow.cli.argument_types import whole_number

AUDIT = """\
Who has asked for what, and how it went: one audit.k8s.io/v1 Event a line, as kube-apiserver writes
them. Without a policy these are all writes, and all looks at secrets, without bodies. What secrets
hold is never written, nor tokens, whatever a policy says.
"""


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument_group("audit log", AUDIT).add_argument
    add("--audit-log-path", default="", metavar="FILE|-", help="-: standard output; default: none")
    add(
        "--audit-policy-file",
        type=Path,
        metavar="FILE",
        help="an audit.k8s.io/v1 Policy, read again when it changes",
    )
    add(
        "--audit-log-maxsize",
        type=whole_number(0, MEGABYTES_MAX),
        default=MEGABYTES_DEFAULT,
        metavar="MB",
        help=f"then a new file is begun; 0: never; default: {MEGABYTES_DEFAULT}",
    )
    add(
        "--audit-log-maxage",
        type=whole_number(0, DAYS_MAX),
        default=0,
        metavar="DAYS",
        help="older files are deleted; 0: none; default: 0",
    )
    add(
        "--audit-log-maxbackup",
        type=whole_number(0, BACKUPS_MAX),
        default=BACKUPS_DEFAULT,
        metavar="N",
        help=f"so many full files are kept; 0: all; default: {BACKUPS_DEFAULT}",
    )
    add("--audit-log-compress", action="store_true", help="full files are compressed")
    add(
        "--audit-log-mode",
        choices=["batch", "blocking"],
        default="batch",
        help="batch: many events at once, and lost if there is no room; blocking: each before its"
        " answer goes out; default: batch",
    )


def audit_options(arguments: argparse.Namespace) -> AuditOptions:
    """What was wished for. Raises ValueError for what cannot work."""
    return AuditOptions(
        path=arguments.audit_log_path,
        policy_file=arguments.audit_policy_file,
        size_max_megabytes=arguments.audit_log_maxsize,
        age_max_days=arguments.audit_log_maxage,
        backups_max=arguments.audit_log_maxbackup,
        compress=arguments.audit_log_compress,
        mode=arguments.audit_log_mode,
    )
