"""Recorded answers of a kube-apiserver 1.36: field sets of applied, created and updated objects.

The objects are as that server stored them, without unmanaged metadata. No value here is ours.
"""

from typing import Any

OBJECT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "set": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "numbers": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "x-kubernetes-list-type": "set",
                },
                "plain": {"type": "array", "items": {"type": "string"}},
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": {
                        "type": "object",
                        "required": ["port"],
                        "properties": {
                            "port": {"type": "integer"},
                            "protocol": {"type": "string", "default": "TCP"},
                            "name": {"type": "string"},
                        },
                    },
                },
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                    },
                },
                "either": {"x-kubernetes-int-or-string": True},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "mixed": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {
                        "known": {"type": "object", "properties": {"a": {"type": "string"}}}
                    },
                },
                "color": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"r": {"type": "integer"}, "g": {"type": "integer"}},
                },
                "texts": {"type": "object", "additionalProperties": {"type": "string"}},
                "structs": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    },
                },
                "embedded": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
                "maybe": {"type": "string", "nullable": True},
                "flag": {"type": "boolean"},
                "size": {"type": "number"},
                "inner": {
                    "type": "object",
                    "properties": {
                        "list": {
                            "type": "array",
                            "items": {"type": "string"},
                            "x-kubernetes-list-type": "set",
                        },
                        "x": {"type": "string"},
                    },
                },
            },
        }
    },
}

# Description, configuration, fields of its applier.
APPLIED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "cm null",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c2", "labels": None},
            "data": None,
        },
        {"f:data": {}, "f:metadata": {"f:labels": {}}},
    ),
    (
        "dep",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d1"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {
                        "containers": [
                            {
                                "name": "c",
                                "image": "i",
                                "ports": [{"containerPort": 80}],
                                "env": [
                                    {"name": "A", "value": "b"},
                                    {
                                        "name": "F",
                                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                                    },
                                ],
                                "resources": {"requests": {"cpu": "1"}},
                                "livenessProbe": {"httpGet": {"port": "web", "path": "/"}},
                            }
                        ],
                        "volumes": [{"name": "v", "emptyDir": {}}],
                        "imagePullSecrets": [{"name": "s"}],
                        "nodeSelector": {"x": "y"},
                        "tolerations": [{"operator": "Exists"}],
                    },
                },
            },
        },
        {
            "f:spec": {
                "f:selector": {},
                "f:template": {
                    "f:metadata": {"f:labels": {"f:a": {}}},
                    "f:spec": {
                        "f:containers": {
                            'k:{"name":"c"}': {
                                ".": {},
                                "f:env": {
                                    'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}},
                                    'k:{"name":"F"}': {
                                        ".": {},
                                        "f:name": {},
                                        "f:valueFrom": {"f:fieldRef": {}},
                                    },
                                },
                                "f:image": {},
                                "f:livenessProbe": {"f:httpGet": {"f:path": {}, "f:port": {}}},
                                "f:name": {},
                                "f:ports": {
                                    'k:{"containerPort":80,"protocol":"TCP"}': {
                                        ".": {},
                                        "f:containerPort": {},
                                    }
                                },
                                "f:resources": {"f:requests": {"f:cpu": {}}},
                            }
                        },
                        "f:imagePullSecrets": {'k:{"name":"s"}': {}},
                        "f:nodeSelector": {},
                        "f:tolerations": {},
                        "f:volumes": {'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}}},
                    },
                },
            }
        },
    ),
    (
        "svc",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "s1",
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "o", "uid": "u1"}],
            },
            "spec": {
                "selector": {"a": "b"},
                "ports": [
                    {"port": 80, "targetPort": 8080, "name": "x"},
                    {"port": 80, "protocol": "UDP", "name": "y"},
                ],
            },
        },
        {
            "f:metadata": {"f:ownerReferences": {'k:{"uid":"u1"}': {}}},
            "f:spec": {
                "f:ports": {
                    'k:{"port":80,"protocol":"TCP"}': {
                        ".": {},
                        "f:name": {},
                        "f:port": {},
                        "f:targetPort": {},
                    },
                    'k:{"port":80,"protocol":"UDP"}': {
                        ".": {},
                        "f:name": {},
                        "f:port": {},
                        "f:protocol": {},
                    },
                },
                "f:selector": {},
            },
        },
    ),
    (
        "thing",
        {
            "apiVersion": "h1.example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "t1"},
            "spec": {
                "set": ["a", "b<c"],
                "numbers": [1, 2],
                "plain": ["x"],
                "ports": [{"port": 1}, {"port": 1, "protocol": "UDP", "name": "n"}],
                "items": [{"name": 'a"b', "value": "v"}],
                "either": 5,
                "free": {"a": {"b": [1], "c": {}}, "d": None, "e": "f"},
                "mixed": {"known": {"a": "b", "q": {"z": 1}}, "other": {"x": 1}},
                "color": {"r": 1, "g": 2},
                "texts": {"a": "b"},
                "structs": {"one": {"a": "b"}, "two": {}},
                "embedded": {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "x", "labels": {"l": "m"}, "finalizers": ["a.b/f"]},
                    "data": {"u": "v"},
                },
                "maybe": None,
                "flag": True,
                "size": 1.5,
                "inner": {"list": []},
            },
        },
        {
            "f:spec": {
                "f:color": {},
                "f:either": {},
                "f:embedded": {
                    "f:apiVersion": {},
                    "f:data": {".": {}, "f:u": {}},
                    "f:kind": {},
                    "f:metadata": {
                        "f:finalizers": {'v:"a.b/f"': {}},
                        "f:labels": {"f:l": {}},
                        "f:name": {},
                    },
                },
                "f:flag": {},
                "f:free": {"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {}},
                "f:items": {'k:{"name":"a\\"b"}': {".": {}, "f:name": {}, "f:value": {}}},
                "f:maybe": {},
                "f:mixed": {
                    "f:known": {"f:a": {}, "f:q": {".": {}, "f:z": {}}},
                    "f:other": {".": {}, "f:x": {}},
                },
                "f:numbers": {"v:1": {}, "v:2": {}},
                "f:plain": {},
                "f:ports": {
                    'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}},
                    'k:{"port":1,"protocol":"UDP"}': {
                        ".": {},
                        "f:name": {},
                        "f:port": {},
                        "f:protocol": {},
                    },
                },
                "f:set": {'v:"a"': {}, 'v:"b\\u003cc"': {}},
                "f:size": {},
                "f:structs": {"f:one": {".": {}, "f:a": {}}, "f:two": {}},
                "f:texts": {"f:a": {}},
            }
        },
    ),
]

# Description, object, fields of its creator.
CREATED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "thing",
        {
            "apiVersion": "h1.example.com/v1",
            "kind": "Thing",
            "metadata": {"labels": {"a": "b"}, "name": "t2"},
            "spec": {
                "color": {"g": 2, "r": 1},
                "either": 5,
                "embedded": {
                    "apiVersion": "v1",
                    "data": {"u": "v"},
                    "kind": "ConfigMap",
                    "metadata": {"finalizers": ["a.b/f"], "labels": {"l": "m"}, "name": "x"},
                },
                "flag": True,
                "free": {"a": {"b": [1], "c": {}}, "d": None, "e": "f"},
                "inner": {"list": []},
                "items": [{"name": 'a"b', "value": "v"}],
                "maybe": None,
                "mixed": {"known": {"a": "b"}, "other": {"x": 1}},
                "numbers": [1, 2],
                "plain": ["x"],
                "ports": [
                    {"port": 1, "protocol": "TCP"},
                    {"name": "n", "port": 1, "protocol": "UDP"},
                ],
                "set": ["a", "b<c"],
                "size": 1.5,
                "structs": {"one": {"a": "b"}, "two": {}},
                "texts": {"a": "b"},
            },
        },
        {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                ".": {},
                "f:color": {},
                "f:either": {},
                "f:embedded": {
                    ".": {},
                    "f:apiVersion": {},
                    "f:data": {".": {}, "f:u": {}},
                    "f:kind": {},
                    "f:metadata": {
                        ".": {},
                        "f:finalizers": {".": {}, 'v:"a.b/f"': {}},
                        "f:labels": {".": {}, "f:l": {}},
                        "f:name": {},
                    },
                },
                "f:flag": {},
                "f:free": {".": {}, "f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {}},
                "f:inner": {".": {}, "f:list": {}},
                "f:items": {".": {}, 'k:{"name":"a\\"b"}': {".": {}, "f:name": {}, "f:value": {}}},
                "f:maybe": {},
                "f:mixed": {
                    ".": {},
                    "f:known": {".": {}, "f:a": {}},
                    "f:other": {".": {}, "f:x": {}},
                },
                "f:numbers": {".": {}, "v:1": {}, "v:2": {}},
                "f:plain": {},
                "f:ports": {
                    ".": {},
                    'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}},
                    'k:{"port":1,"protocol":"UDP"}': {
                        ".": {},
                        "f:name": {},
                        "f:port": {},
                        "f:protocol": {},
                    },
                },
                "f:set": {".": {}, 'v:"a"': {}, 'v:"b\\u003cc"': {}},
                "f:size": {},
                "f:structs": {".": {}, "f:one": {".": {}, "f:a": {}}, "f:two": {}},
                "f:texts": {".": {}, "f:a": {}},
            },
        },
    ),
    (
        "cm",
        {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": "c3", "labels": {"a": "b"}, "finalizers": ["x/y"]},
            "data": {"k": "v"},
        },
        {
            "f:data": {".": {}, "f:k": {}},
            "f:metadata": {
                "f:finalizers": {".": {}, 'v:"x/y"': {}},
                "f:labels": {".": {}, "f:a": {}},
            },
        },
    ),
    (
        "dep",
        {
            "kind": "Deployment",
            "apiVersion": "apps/v1",
            "metadata": {"name": "d2"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {
                        "volumes": [{"name": "v", "emptyDir": {}}],
                        "containers": [
                            {
                                "name": "c",
                                "image": "i",
                                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                                "env": [
                                    {"name": "A", "value": "b"},
                                    {
                                        "name": "F",
                                        "valueFrom": {
                                            "fieldRef": {
                                                "apiVersion": "v1",
                                                "fieldPath": "metadata.name",
                                            }
                                        },
                                    },
                                ],
                                "resources": {"requests": {"cpu": "1"}},
                                "livenessProbe": {
                                    "httpGet": {"path": "/", "port": "web", "scheme": "HTTP"},
                                    "timeoutSeconds": 1,
                                    "periodSeconds": 10,
                                    "successThreshold": 1,
                                    "failureThreshold": 3,
                                },
                                "terminationMessagePath": "/dev/termination-log",
                                "terminationMessagePolicy": "File",
                                "imagePullPolicy": "Always",
                            }
                        ],
                        "restartPolicy": "Always",
                        "terminationGracePeriodSeconds": 30,
                        "dnsPolicy": "ClusterFirst",
                        "nodeSelector": {"x": "y"},
                        "securityContext": {},
                        "imagePullSecrets": [{"name": "s"}],
                        "schedulerName": "default-scheduler",
                        "tolerations": [{"operator": "Exists"}],
                    },
                },
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            },
        },
        {
            "f:spec": {
                "f:progressDeadlineSeconds": {},
                "f:replicas": {},
                "f:revisionHistoryLimit": {},
                "f:selector": {},
                "f:strategy": {
                    "f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}},
                    "f:type": {},
                },
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                    "f:spec": {
                        "f:containers": {
                            'k:{"name":"c"}': {
                                ".": {},
                                "f:env": {
                                    ".": {},
                                    'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}},
                                    'k:{"name":"F"}': {
                                        ".": {},
                                        "f:name": {},
                                        "f:valueFrom": {".": {}, "f:fieldRef": {}},
                                    },
                                },
                                "f:image": {},
                                "f:imagePullPolicy": {},
                                "f:livenessProbe": {
                                    ".": {},
                                    "f:failureThreshold": {},
                                    "f:httpGet": {
                                        ".": {},
                                        "f:path": {},
                                        "f:port": {},
                                        "f:scheme": {},
                                    },
                                    "f:periodSeconds": {},
                                    "f:successThreshold": {},
                                    "f:timeoutSeconds": {},
                                },
                                "f:name": {},
                                "f:ports": {
                                    ".": {},
                                    'k:{"containerPort":80,"protocol":"TCP"}': {
                                        ".": {},
                                        "f:containerPort": {},
                                        "f:protocol": {},
                                    },
                                },
                                "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}}},
                                "f:terminationMessagePath": {},
                                "f:terminationMessagePolicy": {},
                            }
                        },
                        "f:dnsPolicy": {},
                        "f:imagePullSecrets": {".": {}, 'k:{"name":"s"}': {}},
                        "f:nodeSelector": {},
                        "f:restartPolicy": {},
                        "f:schedulerName": {},
                        "f:securityContext": {},
                        "f:terminationGracePeriodSeconds": {},
                        "f:tolerations": {},
                        "f:volumes": {
                            ".": {},
                            'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}},
                        },
                    },
                },
            }
        },
    ),
    (
        "svc",
        {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {"name": "s2"},
            "spec": {
                "ports": [
                    {"name": "x", "protocol": "TCP", "port": 80, "targetPort": 8080},
                    {"name": "y", "protocol": "UDP", "port": 80, "targetPort": 80},
                ],
                "selector": {"a": "b"},
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster",
            },
        },
        {
            "f:spec": {
                "f:internalTrafficPolicy": {},
                "f:ports": {
                    ".": {},
                    'k:{"port":80,"protocol":"TCP"}': {
                        ".": {},
                        "f:name": {},
                        "f:port": {},
                        "f:protocol": {},
                        "f:targetPort": {},
                    },
                    'k:{"port":80,"protocol":"UDP"}': {
                        ".": {},
                        "f:name": {},
                        "f:port": {},
                        "f:protocol": {},
                        "f:targetPort": {},
                    },
                },
                "f:selector": {},
                "f:sessionAffinity": {},
                "f:type": {},
            }
        },
    ),
]

# Description, object before and after, fields of its creator and of the updater.
UPDATED: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "cm",
        {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": "c4"},
            "data": {"a": "1", "b": "2"},
        },
        {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": "c4", "labels": {"x": "y"}},
            "data": {"a": "1", "b": "3", "c": "4"},
        },
        {"f:data": {".": {}, "f:a": {}}},
        {"f:data": {"f:b": {}, "f:c": {}}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}},
    ),
    (
        "cm remove all",
        {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c5"}, "data": {"a": "1"}},
        {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c5"}},
        {},
        {},
    ),
    (
        "thing",
        {
            "apiVersion": "h1.example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "t4"},
            "spec": {
                "color": {"r": 1},
                "either": 1,
                "free": {"a": 1, "b": {"x": 1}, "c": [1], "e": {}, "n": {"y": 1}},
                "items": [{"name": "a", "value": "1"}, {"name": "b"}],
                "set": ["a", "b"],
                "texts": {},
            },
        },
        {
            "apiVersion": "h1.example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "t4"},
            "spec": {
                "color": {"g": 1, "r": 1},
                "either": "x",
                "free": {"a": {"q": 1}, "b": 2, "c": {"z": 1}, "e": None, "n": {"y": 2}},
                "items": [{"name": "b", "value": "2"}, {"name": "c"}],
                "set": ["b", "c"],
                "texts": {"k": "v"},
            },
        },
        {
            "f:spec": {
                ".": {},
                "f:free": {".": {}, "f:n": {}},
                "f:items": {".": {}, 'k:{"name":"b"}': {".": {}, "f:name": {}}},
                "f:set": {".": {}, 'v:"b"': {}},
                "f:texts": {},
            }
        },
        {
            "f:spec": {
                "f:color": {},
                "f:either": {},
                "f:free": {
                    "f:a": {".": {}, "f:q": {}},
                    "f:b": {},
                    "f:c": {".": {}, "f:z": {}},
                    "f:e": {},
                    "f:n": {"f:y": {}},
                },
                "f:items": {
                    'k:{"name":"b"}': {"f:value": {}},
                    'k:{"name":"c"}': {".": {}, "f:name": {}},
                },
                "f:set": {'v:"c"': {}},
                "f:texts": {"f:k": {}},
            }
        },
    ),
]

# Items of a live list, applied items, result of the merge.
MERGED = [
    ("abc", "dba", "dbca"),
    ("abc", "cab", "cab"),
    ("abc", "xay", "xabcy"),
    ("abcd", "db", "acdb"),
    ("abcde", "zec", "abdzec"),
    ("ab", "cd", "abcd"),
    ("abc", "bxcy", "abxcy"),
    ("abcdef", "fxbya", "cdefxbya"),
]

# An applied spec, and the error.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"nope": 1}, ".spec.nope: field not declared in schema"),
    ({"set": ["a", "a"]}, '.spec.set: duplicate entries for key [="a"]'),
    (
        {"items": [{"name": "a"}, {"name": "a"}]},
        '.spec.items: duplicate entries for key [name="a"]',
    ),
    (
        {"items": [{"value": "a"}]},
        (
            ".spec.items: element 0: associative list with keys has an element that omits all "
            """key fields ["name"] (and doesn't have default values for any key fields)"""
        ),
    ),
    (
        {"items": [None]},
        ".spec.items: element 0: associative list with keys may not have a null element",
    ),
    (
        {"items": ["x"]},
        ".spec.items: element 0: associative list with keys may not have non-map elements",
    ),
    (
        {"set": [{"a": 1}]},
        ".spec.set: element 0: associative list without keys has an element that's a map type",
    ),
    (
        {"set": [["a"]]},
        ".spec.set: element 0: not supported: associative list with lists as elements",
    ),
    (
        {"set": [None]},
        (
            ".spec.set: element 0: associative list without keys has an element that's an "
            "explicit null"
        ),
    ),
    ({"flag": "x"}, ".spec.flag: expected boolean, got &{x}"),
    ({"size": "x"}, ".spec.size: expected numeric (int or float), got string"),
    ({"maybe": 5}, ".spec.maybe: expected string, got &value.valueUnstructured{Value:5}"),
    (
        {"maybe": {"a": 1}},
        (
            ".spec.maybe: expected string, got &value.valueUnstructured{Value:"
            'map[string]interface {}{"a":1}}'
        ),
    ),
    ({"plain": "x"}, ".spec.plain: expected list, got &{x}"),
    ({"texts": ["a"]}, ".spec.texts: expected map, got &{[a]}"),
    ({"texts": "a"}, ".spec.texts: expected map, got &{a}"),
    ({"color": {"z": 1}}, ".spec.color.z: field not declared in schema"),
    ({"set": "a"}, ".spec.set: expected list, got &{a}"),
    ({"size": True}, ".spec.size: expected numeric (int or float), got bool"),
    ({"flag": 1}, ".spec.flag: expected boolean, got &{1}"),
    (
        {"maybe": ["a", 1]},
        '.spec.maybe: expected string, got &value.valueUnstructured{Value:[]interface {}{"a", 1}}',
    ),
    (
        {"flag": "x", "size": "y"},
        (
            "errors:\n"
            "  .spec.flag: expected boolean, got &{x}\n"
            "  .spec.size: expected numeric (int or float), got string"
        ),
    ),
    ({"maybe": 1.5}, ".spec.maybe: expected string, got &value.valueUnstructured{Value:1.5}"),
    ({"maybe": True}, ".spec.maybe: expected string, got &value.valueUnstructured{Value:true}"),
]
