"""Objects that several tests send or store."""

from __future__ import annotations

from typing import Any

DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    },
    "status": {"replicas": 5},
}


OLD_CRON_JOB: dict[str, Any] = {
    "kind": "CronJob",
    "apiVersion": "batch/v1beta1",
    "metadata": {
        "name": "nightly",
        "namespace": "default",
        "uid": "11111111-1111-4111-8111-111111111111",
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "generation": 4,
    },
    "spec": {
        "schedule": "0 3 * * *",
        "jobTemplate": {
            "spec": {
                "template": {
                    "spec": {
                        "containers": [{"name": "c", "image": "i"}],
                        "restartPolicy": "Never",
                    }
                }
            }
        },
    },
    "status": {},
}


CRON_JOB_KEY = "/registry/cronjobs/default/nightly"
