"""Names that trigger, migrator and command line share: leases, annotations, reasons.

Not here: the annotations of the servers' agreement (`restow.apis.names`), and those with which the
trigger marks its migrations (`records`).
"""

from typing import Final

NAMESPACE_DEFAULT: Final = "kube-system"
TRIGGER_LEASE: Final = "restow-trigger"
MIGRATOR_LEASE: Final = "restow-migrator"

_PREFIX: Final = "migrator.restow.dev/"
POSITION_ANNOTATION: Final = f"{_PREFIX}position"
"""On a migration: its purpose and its position, as JSON."""
PROOF_ANNOTATION: Final = f"{_PREFIX}proof"
"""On a migration: the verified target and the evidence, as JSON. A success without it does not
count."""
PAUSED_ANNOTATION: Final = f"{_PREFIX}paused"
"""On a migration: "true" pauses it between two pages."""

RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

REASON_RUNNING: Final = "MigrationRunning"
REASON_PAUSED: Final = "MigrationPaused"
REASON_PROVEN: Final = "MigrationProven"
REASON_COMPLETE: Final = "MigrationComplete"
"""All objects were rewritten, but not verified: servers keep their agreement loosely."""
REASON_OBJECTS_FAILED: Final = "ObjectsFailed"
REASON_AGREEMENT_LOST: Final = "AgreementLost"
REASON_NO_RESOURCE: Final = "NoSuchResource"
REASON_LEFT_ALONE: Final = "LeftAlone"
"""An aggregated server stores the resource, and does not report how."""
REASON_NOT_PROVEN: Final = "NotProven"
"""Every pass found objects to rewrite."""
REASON_FAILED: Final = "MigrationFailed"
