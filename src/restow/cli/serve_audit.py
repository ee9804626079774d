"""Audit log flags of `restow serve`."""

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
The audit log records requests and their results: one audit.k8s.io/v1 Event per line, in the format
of kube-apiserver. Without a policy it has all writes, and all reads of secrets, without bodies.
The content of secrets and tokens is never written, regardless of the policy.
"""


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument_group("audit log", AUDIT).add_argument
    add(
        "--audit-log-path",
        default="",
        metavar="FILE|-",
        help="-: standard output; default: no audit log",
    )
    add(
        "--audit-policy-file",
        type=Path,
        metavar="FILE",
        help="an audit.k8s.io/v1 Policy; reloaded when it changes",
    )
    add(
        "--audit-log-maxsize",
        type=whole_number(0, MEGABYTES_MAX),
        default=MEGABYTES_DEFAULT,
        metavar="MB",
        help=f"size at which the file is rotated; 0: never; default: {MEGABYTES_DEFAULT}",
    )
    add(
        "--audit-log-maxage",
        type=whole_number(0, DAYS_MAX),
        default=0,
        metavar="DAYS",
        help="age at which rotated files are deleted; 0: never; default: 0",
    )
    add(
        "--audit-log-maxbackup",
        type=whole_number(0, BACKUPS_MAX),
        default=BACKUPS_DEFAULT,
        metavar="N",
        help=f"number of rotated files to keep; 0: all; default: {BACKUPS_DEFAULT}",
    )
    add("--audit-log-compress", action="store_true", help="compress rotated files")
    add(
        "--audit-log-mode",
        choices=["batch", "blocking"],
        default="batch",
        help="batch: write many events at once, and drop them if the buffer is full; blocking:"
        " write each event before the response is sent; default: batch",
    )


def audit_options(arguments: argparse.Namespace) -> AuditOptions:
    """Build the options. Raises ValueError for options that exclude each other."""
    return AuditOptions(
        path=arguments.audit_log_path,
        policy_file=arguments.audit_policy_file,
        size_max_megabytes=arguments.audit_log_maxsize,
        age_max_days=arguments.audit_log_maxage,
        backups_max=arguments.audit_log_maxbackup,
        compress=arguments.audit_log_compress,
        mode=arguments.audit_log_mode,
    )
