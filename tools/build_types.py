"""Builds `src/restow/kinds/data/types.bin` from a file of field facts of the Kubernetes types.

Run it by hand when the facts change: `python tools/build_types.py FACTS.json`. The facts file is
not in the repository. `restow.kinds.types` describes the format and reads it.

Not here: anything that runs in a test or in the server.
"""

import argparse
import json
import re
import zlib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src/restow/kinds/data/types.bin"
API = "k8s.io/api/"
META = "k8s.io/apimachinery/pkg/apis/meta/v1"
EXTENSIONS = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
OTHER_ROOTS = (META, EXTENSIONS, "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1")

# Groups whose name is not that of their directory with the suffix ".k8s.io".
GROUPS = {
    "core": "",
    "apps": "apps",
    "autoscaling": "autoscaling",
    "batch": "batch",
    "extensions": "extensions",
    "policy": "policy",
    "apiserverinternal": "internal.apiserver.k8s.io",
    "flowcontrol": "flowcontrol.apiserver.k8s.io",
    "rbac": "rbac.authorization.k8s.io",
}

# Go import names, where the facts use them, and the packages that they mean. `v1` alone is
# decided by which of its candidates has the type.
IMPORTS = {
    "metav1": (META,),
    "apiv1": (API + "core/v1",),
    "corev1": (API + "core/v1",),
    "batchv1": (API + "batch/v1",),
    "authenticationv1": (API + "authentication/v1",),
    "authorizationv1": (API + "authorization/v1",),
    "v1": (API + "core/v1", META, API + "authentication/v1"),
}

SCALARS = {"string", "bool", "int32", "int64", "float64"}

# Types with a JSON form of their own; the letter represents them in the table.
SPECIALS = {
    "Time": "@T",
    "MicroTime": "@M",
    "Duration": "@D",
    "resource.Quantity": "@Q",
    "intstr.IntOrString": "@I",
    "runtime.RawExtension": "@R",
    "FieldsV1": "@F",
    "JSON": "@J",
    "JSONSchemaPropsOrArray": "@A",
    "JSONSchemaPropsOrBool": "@B",
    "JSONSchemaPropsOrStringArray": "@S",
}

# Named types that are neither structs nor strings.
NAMED = {
    "ResourceList": "{}@Q",
    "ExtraValue": "<>string",
    "Verbs": "<>string",
    "JSONSchemaDefinitions": "{}JSONSchemaProps",
    "JSONSchemaDependencies": "{}@S",
    "ValidationRules": "[]ValidationRule",
}

# Structs without fields, which the facts omit.
EMPTY = {
    API + "scheduling/v1alpha2": ("BasicSchedulingPolicy",),
    API + "apiserverinternal/v1alpha1": ("StorageVersionSpec",),
    EXTENSIONS: ("CustomResourceSubresourceStatus",),
}

# Go aliases of a type of another package, which the facts omit too.
ALIASES = {
    (API + "admissionregistration/v1alpha1", "MatchCondition"): API + "admissionregistration/v1",
    (API + "admissionregistration/v1alpha1", "RuleWithOperations"): API
    + "admissionregistration/v1",
    (API + "admissionregistration/v1beta1", "RuleWithOperations"): API + "admissionregistration/v1",
}

# Structs of the facts that the specials replace.
LEFT_OUT = {
    (META, "Duration"),
    (META, "FieldsV1"),
    (META, "Table"),  # its rows have no protobuf form, so it is not in the facts
    (META, "Timestamp"),
    (META, "TypeMeta"),
    (EXTENSIONS, "JSON"),
    (EXTENSIONS, "JSONSchemaPropsOrArray"),
    (EXTENSIONS, "JSONSchemaPropsOrBool"),
    (EXTENSIONS, "JSONSchemaPropsOrStringArray"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("facts", type=Path, help="the JSON file of field facts")
    parser.add_argument("--target", type=Path, default=TARGET)
    arguments = parser.parse_args()
    packages: dict[str, Any] = json.loads(arguments.facts.read_text())["packages"]
    for package, names in EMPTY.items():
        packages[package].update({name: [] for name in names})
    data = build(packages)
    arguments.target.parent.mkdir(parents=True, exist_ok=True)
    arguments.target.write_bytes(data)
    print(f"{arguments.target}: {len(data)} bytes")


def build(packages: dict[str, Any]) -> bytes:
    """The whole file: the length of the index, the index, then one part per package."""
    index: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for package in sorted(packages):
        if not (package.startswith(API) or package in OTHER_ROOTS):
            continue
        kinds: list[str] = []
        texts: list[str] = []
        for name, fields in sorted(packages[package].items()):
            if (package, name) in LEFT_OUT:
                continue
            is_kind = any(each["type"].endswith("TypeMeta") for each in fields)
            if is_kind:
                kinds.append(name)
            lines = [name + "!" * is_kind]
            lines += [line for each in fields if (line := field_line(packages, package, each))]
            texts.append("\n".join(lines))
        part = zlib.compress("\n\n".join(texts).encode(), 9)
        group, version = group_version(package)
        index[openapi_prefix(package)] = [offset, len(part), group, version, " ".join(kinds)]
        parts.append(part)
        offset += len(part)
    head = zlib.compress(json.dumps(index, separators=(",", ":")).encode(), 9)
    return len(head).to_bytes(4, "big") + head + b"".join(parts)


def field_line(packages: dict[str, Any], package: str, fact: dict[str, Any]) -> str:
    """One field as `json number type [key=value...]`; empty for TypeMeta, which `!` represents.

    An embedded struct has `.` for its name. A `*` before the type is a pointer, a `?` behind it
    is omitempty.
    """
    if fact["type"].endswith("TypeMeta"):
        return ""
    pointer, bare = ("*", fact["type"][1:]) if fact["type"][0] == "*" else ("", fact["type"])
    text = pointer + type_text(packages, package, bare) + "?" * fact.get("omitempty", False)
    words = ["." if fact.get("inline") else fact["json"], str(fact["number"]), text]
    for mark, key in (("p", "patchStrategy"), ("k", "patchMergeKey"), ("l", "listType")):
        if key in fact:
            words.append(f"{mark}={fact[key]}")
    if "listMapKeys" in fact:
        words.append("i=" + ",".join(fact["listMapKeys"]))
    granularity = fact.get("mapType") or fact.get("structType")
    if granularity:
        words.append(f"m={granularity}")
    return " ".join(words)


def type_text(packages: dict[str, Any], package: str, go_type: str) -> str:
    """A Go type in table notation: `[]` list, `{}` map, `<>` wrapped list, `@` special."""
    if go_type == "[]byte":
        return "bytes"
    if go_type.startswith("[]"):
        return "[]" + type_text(packages, package, go_type[2:])
    if match := re.fullmatch(r"map\[[^]]*\](.*)", go_type):
        return "{}" + type_text(packages, package, match[1])
    if go_type in SCALARS:
        return go_type
    prefix, _, name = go_type.rpartition(".")
    special = SPECIALS.get(go_type) or (SPECIALS.get(name) if prefix in ("", "metav1") else None)
    if special:
        return special
    if name in NAMED:
        return NAMED[name]
    if not prefix and (package, name) in ALIASES:
        return openapi_prefix(ALIASES[package, name]) + "." + name
    if not prefix:
        return name if name in packages[package] else "string"
    for candidate in IMPORTS.get(prefix, ()):
        if name in packages[candidate]:
            return openapi_prefix(candidate) + "." + name
    # Every other named type of the API is a string: phases, policies, operators, UIDs.
    return "string"


def openapi_prefix(package: str) -> str:
    """The package in OpenAPI notation: `io.k8s.api.core.v1`."""
    return "io." + package.replace("k8s.io", "k8s", 1).replace("/", ".")


def group_version(package: str) -> tuple[str, str]:
    """The API group and version that a package holds; meta types are in every group."""
    directory, version = package.split("/")[-2:]
    if package == META:
        return "meta.k8s.io", version
    return GROUPS.get(directory, directory + ".k8s.io"), version


if __name__ == "__main__":
    main()
