"""Builds `src/restow/kinds/data/kubernetes-releases.bin` from files of facts about Kubernetes.

Run it by hand when the facts change:

    python tools/build_kubernetes_releases.py RELEASES.json TYPES.json

The first lists the versions that each release serves and stores, the second the kinds. Neither is
in the repository. `restow.kinds.kubernetes_releases` describes the format and reads it.

Not here: anything that runs in a test or in the server.
"""

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src/restow/kinds/data/kubernetes-releases.bin"

# Kinds without a type in the newest release.
GONE = {
    "auditsinks": "AuditSink",
    "clustercidrs": "ClusterCIDR",
    "podpresets": "PodPreset",
    "podschedulingcontexts": "PodSchedulingContext",
    "podschedulings": "PodScheduling",
    "podsecuritypolicies": "PodSecurityPolicy",
    "resourceclaimparameters": "ResourceClaimParameters",
    "resourceclasses": "ResourceClass",
    "resourceclassparameters": "ResourceClassParameters",
}

# Rows that the facts omit for older releases.
LEFT_OUT = ("storage.k8s.io/csidrivers", "storage.k8s.io/csinodes")
LEFT_OUT_SINCE = "1.22"

Row = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("releases", type=Path, help="the JSON file of releases")
    parser.add_argument("types", type=Path, help="the JSON file of field facts")
    parser.add_argument("--target", type=Path, default=TARGET)
    arguments = parser.parse_args()
    releases: dict[str, Any] = json.loads(arguments.releases.read_text())["releases"]
    packages: dict[str, Any] = json.loads(arguments.types.read_text())["packages"]
    data = build(releases, kinds_of(packages))
    arguments.target.write_bytes(data)
    print(f"{arguments.target}: {len(data)} bytes")


def kinds_of(packages: dict[str, Any]) -> dict[str, str]:
    """Kinds by possible plural: the usual English one or the kind itself."""
    found = dict(GONE)
    for types in packages.values():
        for name, fields in types.items():
            if any(each["type"].endswith("TypeMeta") for each in fields):
                lower = name.lower()
                for plural in (lower, f"{lower}s", f"{lower}es", f"{lower[:-1]}ies"):
                    found.setdefault(plural, name)
    return found


def build(releases: dict[str, Any], kinds: dict[str, str]) -> bytes:
    """The whole file: names of releases, and for each resource its changes by release."""
    names = sorted(releases, key=lambda name: [int(part) for part in name.split(".")])
    fill_in(releases, names)
    resources: dict[str, list[Any]] = {}
    for resource in sorted({each for facts in releases.values() for each in facts["resources"]}):
        changes: list[Any] = []
        before: Row | None = None
        for number, name in enumerate(names):
            now = row_of(releases[name]["resources"].get(resource))
            if now != before:
                changes.append([number, *(now or ("", ""))])
                before = now
        resources[resource] = [kinds[resource.rpartition("/")[2]], changes]
    document = {"releases": names, "resources": resources}
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)


def fill_in(releases: dict[str, Any], names: list[str]) -> None:
    for resource in LEFT_OUT:
        facts = releases[names[-1]]["resources"][resource]
        for name in names[names.index(LEFT_OUT_SINCE) :]:
            releases[name]["resources"].setdefault(resource, facts)


def row_of(facts: dict[str, Any] | None) -> Row | None:
    """Served versions and storage version; None where a release has no such resource."""
    return None if facts is None else (" ".join(facts["served"]), str(facts["storage"]))


if __name__ == "__main__":
    main()
