"""Names that trigger, migrator and command line share: leases, annotations, reasons.

Not here: the annotations by which servers mark their agreement (`restow.apis.names`), and those by
which the trigger marks its requests (`records`).
"""

from typing import Final

NAMESPACE_DEFAULT: Final = "kube-system"
TRIGGER_LEASE: Final = "restow-trigger"
MIGRATOR_LEASE: Final = "restow-migrator"

_PREFIX: Final = "migrator.restow.dev/"
POSITION_ANNOTATION: Final = f"{_PREFIX}position"
"""On a request: for what it was begun, and how far it is, as JSON."""
PROOF_ANNOTATION: Final = f"{_PREFIX}proof"
"""On a request: what was proven, and by what, as JSON. Without one, success is not believed."""
PAUSED_ANNOTATION: Final = f"{_PREFIX}paused"
"""On a request: "true" holds it between two pages."""

RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

REASON_RUNNING: Final = "MigrationRunning"
REASON_PAUSED: Final = "MigrationPaused"
REASON_PROVEN: Final = "MigrationProven"
REASON_COMPLETE: Final = "MigrationComplete"
"""All was rewritten, and nothing is proven: servers keep their agreement loosely."""
REASON_OBJECTS_FAILED: Final = "ObjectsFailed"
REASON_AGREEMENT_LOST: Final = "AgreementLost"
REASON_NO_RESOURCE: Final = "NoSuchResource"
REASON_LEFT_ALONE: Final = "LeftAlone"
"""An aggregated server stores it, and does not say how."""
REASON_NOT_PROVEN: Final = "NotProven"
"""It was rewritten again and again, and never found unchanged."""
REASON_FAILED: Final = "MigrationFailed"
