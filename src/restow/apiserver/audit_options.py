"""What one may choose about the audit log. Values only; nothing is opened here."""

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
    """The audit log; without a path there is none."""

    path: str = ""
    """A file, or `-` for the standard output."""
    policy_file: Path | None = None
    """None: writes and looks at secrets, without bodies."""
    size_max_megabytes: int = MEGABYTES_DEFAULT
    """Then a new file is begun; 0: one file, however long."""
    age_max_days: int = 0
    """0: full files are kept, however old."""
    backups_max: int = BACKUPS_DEFAULT
    """0: however many."""
    compress: bool = False
    mode: AuditMode = "batch"

    def __post_init__(self) -> None:
        if self.policy_file is not None and not self.path:
            raise ValueError("--audit-policy-file: only with --audit-log-path")
        for flag, value, limit in (
            ("--audit-log-maxsize", self.size_max_megabytes, MEGABYTES_MAX),
            ("--audit-log-maxage", self.age_max_days, DAYS_MAX),
            ("--audit-log-maxbackup", self.backups_max, BACKUPS_MAX),
        ):
            if not 0 <= value <= limit:
                raise ValueError(f"{flag} {value} is not between 0 and {limit}")
