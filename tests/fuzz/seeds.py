"""Seeds for fuzzing: small inputs with a high coverage of each parser."""

from __future__ import annotations

from typing import Any, Final

POD: Final[dict[str, Any]] = {
    "metadata": {
        "name": "a",
        "namespace": "default",
        "labels": {"app": "x"},
        "finalizers": ["example.org/a"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "example/main:1",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "b"}],
                "resources": {"limits": {"cpu": "500m"}},
            }
        ],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 30,
    },
}

# Kinds besides pods whose messages are fuzzed, in order: one for each form of a field.
FRAMES: Final[tuple[dict[str, Any], ...]] = (
    {"metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"b": "AP8="}},
    {
        "metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {
            "replicas": 0,
            "selector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            "template": {"spec": {"securityContext": {"supplementalGroups": [1, -2]}}},
        },
    },
    {
        "metadata": {"name": "a"},
        "spec": {
            "versions": [
                {
                    "name": "v1",
                    "schema": {
                        "openAPIV3Schema": {
                            "items": {"type": "string"},
                            "additionalProperties": False,
                            "default": {"a": [1.5, None]},
                            "maximum": 2.5,
                        }
                    },
                }
            ]
        },
    },
    {
        "metadata": {"managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
        "spec": {"leaseDurationSeconds": -1, "renewTime": "2026-01-02T03:04:05.678901Z"},
    },
    {"metadata": {"name": "a"}, "data": {"kind": "X"}, "revision": 7},
    {"metadata": {}, "spec": {"user": "u", "extra": {"k": ["a", "b"]}}, "status": {}},
    {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "dryRun": ["All"]},
    {"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}]},
)

POD_YAML: Final = b"""\
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {app: "x"}}
spec:
  containers:
  - name: main
    image: 'example/main:1'
    ports: [{containerPort: 80}]
# the end
"""

DOCUMENT: Final[dict[str, Any]] = {
    "a": {"b": 1, "c~d": [1, 2, {"e": "f"}], "": None},
    "l": ["x", "y"],
    "s": "text",
}

PATCHES: Final = (
    b'[{"op":"add","path":"/a/x","value":{"y":[1]}},{"op":"remove","path":"/l/0"}]',
    b'[{"op":"test","path":"/a/b","value":1.0},{"op":"move","from":"/l","path":"/a/c~0d/-"}]',
    b'[{"op":"copy","from":"/a","path":"/a/c~0d/2/e"},{"op":"replace","path":"","value":{}}]',
)

STRATEGIC: Final = (
    b'{"spec":{"containers":[{"name":"main","image":"b"},{"name":"two","image":"c"}]}}',
    b'{"spec":{"containers":[{"$patch":"delete","name":"main"}]}}',
    b'{"metadata":{"finalizers":["b"],"$deleteFromPrimitiveList/finalizers":["example.org/a"]}}',
    b'{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[]}}',
    b'{"spec":{"$retainKeys":["containers"],"$patch":"replace"}}',
)

_HOST: Final = b" HTTP/1.1\r\nHost: a\r\n"
HEADS: Final = (
    b"GET /api/v1/pods?limit=5" + _HOST + b"Accept: x\r\n\r\n",
    b"POST /a" + _HOST + b"Content-Length: 5\r\n\r\nhelloGET /" + _HOST + b"\r\n",
    b"PUT /" + _HOST + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\nGET /" + _HOST + b"Expect: 100-continue\r\n\r\n",
    b"\r\nGET /" + _HOST + b"\r\n\r\n",
)

RULES: Final = (
    b"self.a > 3 && self.s.matches('^t.*') || has(self.m.k)",
    b"self.l.all(x, x in ['x', 'y']) ? self.m['k'] == 1 : size(self.s) < 10",
    b"self.l.map(x, x + '!').exists_one(y, y == 'x!') && self == oldSelf",
    b"duration('1h') > duration('5m') && timestamp('2020-01-01T00:00:00Z').getFullYear() == 2020",
    b"quantity('1Gi').isGreaterThan(quantity('5')) && url('https://a/b').getHost() == 'a'",
    rb"""r'\x' + "\u0041" == '''a''' && b'\377' != b'a' && -5 % 2 == 1 && 5u < 7u""",
)
