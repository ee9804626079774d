"""Fields that objects need besides a name, for generated requests. Values only."""

from __future__ import annotations

from typing import Any, Final

PODS: Final[dict[str, Any]] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"},
}
RUN_ONCE: Final = {"template": {"spec": {**PODS["spec"], "restartPolicy": "Never"}}}
REPLICATED: Final = {"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": PODS}}
ROLE: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
MIGRATED: Final = {"spec": {"resource": {"group": "", "version": "v1", "resource": "secrets"}}}
POLICY: Final = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": ["none.example.com"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["nones"],
            }
        ]
    },
    "validations": [{"expression": "object.spec.x == 1"}],
}
# Additional fields of objects, by resource.
OBJECTS: Final[dict[str, dict[str, Any]]] = {
    "clusterrolebindings": {"roleRef": ROLE},
    "controllerrevisions": {"data": {}, "revision": 1},
    "cronjobs": {"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": RUN_ONCE}}},
    "daemonsets": REPLICATED,
    "deployments": REPLICATED,
    "endpointslices": {"addressType": "IPv4", "endpoints": []},
    "horizontalpodautoscalers": {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}
    },
    "ingressclasses": {"spec": {"controller": "example.com/c"}},
    "ingresses": {"spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}},
    "jobs": {"spec": RUN_ONCE},
    "persistentvolumeclaims": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    "pods": PODS,
    "podtemplates": {"template": PODS},
    "replicasets": REPLICATED,
    "replicationcontrollers": {"spec": {"selector": {"app": "web"}, "template": PODS}},
    "rolebindings": {"roleRef": ROLE},
    "runtimeclasses": {"handler": "h"},
    "services": {"spec": {"ports": [{"port": 80}]}},
    "statefulsets": {"spec": {**REPLICATED["spec"], "serviceName": "web"}},
    "storageclasses": {"provisioner": "example.com/p"},
    "storagestates": MIGRATED,
    "storageversionmigrations": MIGRATED,
    "validatingadmissionpolicies": {"spec": POLICY},
    "volumeattachments": {
        "spec": {
            "attacher": "example.com",
            "nodeName": "n",
            "source": {"persistentVolumeName": "v"},
        }
    },
}
