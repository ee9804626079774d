"""The flags of the audit log, and starts that fail because of them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.apiserver.audit import open_audit
from restow.apiserver.audit_options import AuditOptions
from restow.audit import PolicyError
from restow.audit.log_file import LogRefused
from restow.cli.serve_audit import add_audit, audit_options


def parsed(*words: str) -> AuditOptions:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_audit(parser)
    return audit_options(parser.parse_args(words))


def test_flags() -> None:
    """Without flags there is no log; each flag sets its option."""
    assert parsed() == AuditOptions()
    assert parsed(
        *("--audit-log-path", "/a", "--audit-policy-file", "/p", "--audit-log-maxsize", "5"),
        *("--audit-log-maxage", "6", "--audit-log-maxbackup", "7", "--audit-log-compress"),
        *("--audit-log-mode", "blocking"),
    ) == AuditOptions(
        path="/a",
        policy_file=Path("/p"),
        size_max_megabytes=5,
        age_max_days=6,
        backups_max=7,
        compress=True,
        mode="blocking",
    )


def test_refused_flags() -> None:
    """A policy without a log, and invalid numbers, are rejected by name."""
    with pytest.raises(ValueError, match="--audit-policy-file: requires"):
        parsed("--audit-policy-file", "/p")
    with pytest.raises(ValueError, match="--audit-log-maxsize -1"):
        AuditOptions(path="/a", size_max_megabytes=-1)


async def test_refused_files(tmp_path: Path) -> None:
    """A server does not start with an invalid policy, or a log that it cannot write."""
    runtime, policy = Runtime.system(), tmp_path / "policy"
    assert await open_audit(AuditOptions(), runtime) is None
    with pytest.raises(PolicyError, match="policy: No such file"):
        await open_audit(AuditOptions(path=str(tmp_path / "x"), policy_file=policy), runtime)
    policy.touch()
    policy.chmod(0o666)
    with pytest.raises(PolicyError, match=f"mode 666.* chmod 600 {policy}"):
        await open_audit(AuditOptions(path=str(tmp_path / "x"), policy_file=policy), runtime)
    assert not (tmp_path / "x").exists()
    with pytest.raises(LogRefused, match="audit log"):
        await open_audit(AuditOptions(path=str(tmp_path)), runtime)
