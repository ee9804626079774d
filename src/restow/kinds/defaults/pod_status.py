"""What is said of a pod from its first moment, before anything has run it.

Its class of service follows from what its containers ask for, and stays with it.

Not here: anything that comes later, which is for those who run pods.
"""

from __future__ import annotations

from restow.apimachinery.pod_resources import service_class
from restow.kinds.defaults.fields import Object, child, put


def begin_pod(obj: Object) -> None:
    """A pod that is new: it waits, and for longer if there is a gate before it."""
    spec, status = child(obj, "spec"), child(obj, "status")
    put(status, "phase", "Pending")
    put(status, "qosClass", service_class(spec))
    if spec.get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "lastTransitionTime": child(obj, "metadata").get("creationTimestamp"),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        put(status, "conditions", [gated])
