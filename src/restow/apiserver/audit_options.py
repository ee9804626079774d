"""Options of the audit log. Values only; nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

MEGABYTES_DEFAULT: Final = 100
MEGABYTES_MAX: Final = 1024 * 1024
DAYS_MAX: Final = 36_500
BACKUPS_DEFAULT: Final = 10
BACKUPS_MAX: Final = 100_000

AuditMode = Literal["batch", "blocking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Options of the audit log; without a path there is none."""

    path: str = ""
    """A file, or `-` for standard output."""
    policy_file: Path | None = None
    """None: metadata only of writes and of reads of Secrets."""
    size_max_megabytes: int = MEGABYTES_DEFAULT
    """Size at which the file is rotated; 0: never."""
    age_max_days: int = 0
    """Age at which rotated files are deleted; 0: never."""
    backups_max: int = BACKUPS_DEFAULT
    """Number of rotated files to keep; 0: all."""
    compress: bool = False
    mode: AuditMode = "batch"

    def __post_init__(self) -> None:
        if self.policy_file is not None and not self.path:
            raise ValueError("--audit-policy-file: requires --audit-log-path")
        for flag, value, limit in (
            ("--audit-log-maxsize", self.size_max_megabytes, MEGABYTES_MAX),
            ("--audit-log-maxage", self.age_max_days, DAYS_MAX),
            ("--audit-log-maxbackup", self.backups_max, BACKUPS_MAX),
        ):
            if not 0 <= value <= limit:
                raise ValueError(f"{flag} {value} is not between 0 and {limit}")
