"""kubectl with CRDs and their objects, on SQLite and on etcd."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.crds import certificates, gateways, small, workflows
from tests.crds.building import Family
from tests.e2e.api.kubectl import Kubectl


def define(kubectl: Kubectl, family: Family) -> Family:
    """Applies a CRD and waits until it is established."""
    said = kubectl.apply(family.definition)
    assert said == f"customresourcedefinition.apiextensions.k8s.io/{family.name} created"
    wait(kubectl, family)
    return family


def wait(kubectl: Kubectl, family: Family) -> None:
    words = ["wait", "--for=condition=Established", "--timeout=30s", f"crd/{family.name}"]
    said = kubectl.run(*words)
    assert (
        said.strip() == f"customresourcedefinition.apiextensions.k8s.io/{family.name} condition met"
    )


def full(family: Family) -> str:
    """The resource by an unambiguous name."""
    return f"{family.plural}.{family.group}"


def test_first_steps(kubectl: Kubectl, group: str) -> None:
    """Create a CRD, wait, apply, get with columns, apply again, delete: the steps of every
    introduction."""
    family = define(kubectl, certificates.certificate(group))
    first = family.good[0]
    assert kubectl.apply(first) == f"certificate.{group}/web created"
    lines = kubectl.run("get", full(family)).splitlines()
    assert lines[0].split() == ["NAME", "READY", "SECRET", "AGE"]
    assert lines[1].split()[:2] == ["web", "web-tls"]
    wide = kubectl.run("get", full(family), "-o", "wide").splitlines()
    assert wide[0].split() == ["NAME", "READY", "SECRET", "ISSUER", "STATUS", "AGE"]
    assert kubectl.apply(first) == f"certificate.{group}/web unchanged"
    changed = first | {"spec": first["spec"] | {"secretName": "other-tls"}}
    assert kubectl.apply(changed) == f"certificate.{group}/web configured"
    read = kubectl.json("get", full(family), "web", "-o", "json")
    assert read["spec"]["secretName"] == "other-tls"
    assert read["spec"]["privateKey"] == {"algorithm": "RSA"}
    said = kubectl.run("delete", full(family), "web").strip()
    assert said.startswith(f'certificate.{group} "web" deleted')
    assert "NotFound" in kubectl.fail("get", full(family), "web")
    kubectl.run("delete", "crd", family.name)


def test_apply_all_at_once(kubectl: Kubectl, group: str, tmp_path: Path) -> None:
    """A directory of six CRDs is applied and waited for, then its objects are applied."""
    families = certificates.families(group)
    for family in families:
        file = tmp_path / f"{family.plural}.yaml"
        file.write_text(yaml.safe_dump(family.definition))
    assert kubectl.run("apply", "-f", str(tmp_path)).count(" created\n") == 6
    names = [f"crd/{family.name}" for family in families]
    kubectl.run("wait", "--for=condition=Established", "--timeout=30s", *names)
    objects = [each for family in families for each in family.good]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": objects})
    listed = kubectl.run("get", "certs", "-o", "name").split()
    assert f"certificate.{group}/web" in listed
    assert f"clusterissuer.{group}/acme" in listed
    lines = kubectl.run("api-resources", f"--api-group={group}", "--no-headers").splitlines()
    assert {line.split()[-1] for line in lines} == {family.kind for family in families}
    kubectl.run("delete", "-f", str(tmp_path))
    assert kubectl.run("api-resources", f"--api-group={group}", "--no-headers") == ""


def test_names(kubectl: Kubectl, group: str) -> None:
    """A kind is found by plural, singular, kind and short name, with and without its group."""
    family = define(kubectl, small.cluster_wide(group))
    kubectl.apply(family.good[0])
    for name in ("territories", "territory", "ter", "Territory", full(family)):
        assert kubectl.run("get", name, "-o", "name").strip() == f"territory.{group}/north"
    line = kubectl.run("api-resources", f"--api-group={group}", "--no-headers").split()
    assert line == ["territories", "ter", f"{group}/v1", "false", "Territory"]
    kubectl.run("delete", "crd", family.name)
    assert kubectl.run("api-resources", f"--api-group={group}", "--no-headers") == ""
    assert "the server doesn't have a resource type" in kubectl.fail("get", "territories")


def test_explain(kubectl: Kubectl, group: str) -> None:
    """kubectl explains the fields of a custom kind, from the published schema."""
    family = define(kubectl, certificates.certificate(group))
    words = ["explain", f"--api-version={group}/v1"]
    said = kubectl.run(*words, "certificates")
    assert "A key pair that is signed, kept and renewed." in said
    # Before 1.27 the group precedes the version, and enum values are not shown.
    assert (f"GROUP:      {group}" if kubectl.minor >= 27 else f"VERSION:  {group}/v1") in said
    field = kubectl.run(*words, "certificates.spec.secretName")
    assert "Where the key pair is kept." in field
    assert re.search(r"FIELD:\s+secretName <string>", field)
    tree = kubectl.run(*words, "certificates", "--recursive")
    assert re.search(r"issuerRef\t<Object>( -required-)?$", tree, re.MULTILINE)
    if kubectl.minor >= 30:
        assert "enum: RSA, ECDSA, Ed25519" in tree
    kubectl.run("delete", "crd", family.name)


def test_mistakes(kubectl: Kubectl, group: str) -> None:
    """Errors are reported with the messages that users search for."""
    family = define(kubectl, gateways.gateway(group))
    for refused in family.bad[:3]:
        text = kubectl.fail("create", "-f", "-", stdin=json.dumps(refused.obj))
        assert f'The Gateway "{refused.name}" is invalid: {refused.causes[0].field}: ' in text
        assert refused.causes[0].message in text
    good = family.good[0]
    typo = good | {"spec": good["spec"] | {"listenrs": []}}
    text = kubectl.fail("create", "-f", "-", stdin=json.dumps(typo))
    # Old ones read the schema themselves.
    assert re.search(r'unknown field "(spec\.)?listenrs"', text)
    assert ("strict decoding error" in text) == (kubectl.minor >= 25)
    kubectl.run("create", "--validate=false", "-f", "-", stdin=json.dumps(typo))
    old = kubectl.try_run("get", f"gateways.v1beta1.{group}", "-o", "name")
    assert (old.code, old.out.strip()) == (0, f"gateway.{group}/outer")
    assert f"Warning: {group}/v1beta1 Gateway is deprecated" in old.err
    kubectl.run("delete", "crd", family.name)


def test_describe_edit_and_patch(kubectl: Kubectl, group: str) -> None:
    """An object is described, edited in an editor, patched, labelled, and its status patched."""
    family = define(kubectl, certificates.certificate(group))
    name = full(family)
    kubectl.apply(family.good[0])
    editor = {"KUBE_EDITOR": "sed -i s/web-tls/edited-tls/"}
    said = kubectl.run("edit", name, "web", env=editor).strip()
    assert said == f"certificate.{group}/web edited"
    kubectl.run("patch", name, "web", "--type=merge", "-p", '{"spec":{"commonName":"a.org"}}')
    text = kubectl.fail("patch", name, "web", "-p", '{"spec":{"commonName":"a.org"}}')
    if kubectl.minor >= 27:
        assert "application/strategic-merge-patch+json is not supported by" in text
    else:
        assert "Error from server (UnsupportedMediaType)" in text
    condition = {"type": "Ready", "status": "True", "reason": "Issued", "message": "done"}
    status = json.dumps({"status": {"conditions": [condition]}})
    if kubectl.minor >= 24:
        words = ["--subresource=status", "--type=merge", "-p", status]
        kubectl.run("patch", name, "web", *words)
    else:  # it has no option for that
        read = kubectl.json("get", name, "web", "-o", "json")
        path = f"/apis/{group}/v1/namespaces/{kubectl.namespace}/{family.plural}/web/status"
        sent = json.dumps(read | json.loads(status))
        kubectl.run("replace", "--raw", path, "-f", "-", stdin=sent)
    kubectl.run("wait", "--for=condition=Ready", "--timeout=30s", f"{name}/web")
    described = kubectl.run("describe", name, "web")
    assert "Secret Name:  edited-tls" in described
    assert "Common Name:  a.org" in described
    assert "Kind:         Certificate" in described
    kubectl.run("label", name, "web", "tier=front")
    assert kubectl.run("get", name, "-l", "tier=front", "-o", "name").strip().endswith("/web")
    path = "jsonpath={.status.conditions[0].message}"
    assert kubectl.run("get", name, "web", "-o", path) == "done"
    kubectl.run("delete", "crd", family.name)


def test_scale(kubectl: Kubectl, group: str) -> None:
    """A custom kind with a scale subresource is scaled like any other."""
    family = define(kubectl, small.scalable(group))
    kubectl.apply(family.good[0])
    said = kubectl.run("scale", f"{full(family)}/alpha", "--replicas=7").strip()
    assert said == f"squad.{group}/alpha scaled"
    read = kubectl.json("get", full(family), "alpha", "-o", "json")
    assert read["spec"]["replicas"] == 7
    words = ["get", full(family), "alpha", "--subresource=scale", "-o", "json"]
    if kubectl.minor < 24:
        path = f"/apis/{group}/v1/namespaces/{kubectl.namespace}/{family.plural}/alpha/scale"
        words = ["get", "--raw", path]
    scale = kubectl.json(*words)
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 7)
    kubectl.run("delete", "crd", family.name)


def test_large_definition(kubectl: Kubectl, group: str, tmp_path: Path) -> None:
    """A CRD too large for kubectl's annotation is created, used, explained and replaced."""
    family = workflows.workflow(group)
    file = tmp_path / "workflow.json"
    file.write_text(json.dumps(family.definition))
    too_long = kubectl.fail("apply", "-f", str(file))
    assert "metadata.annotations: Too long: may not be more than 262144 bytes" in too_long
    kubectl.run("create", "-f", str(file))
    wait(kubectl, family)
    kubectl.apply(family.good[0])
    lines = kubectl.run("get", "wf").splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "AGE"]
    field = "workflows.spec.templates.container.image"
    said = kubectl.run("explain", f"--api-version={group}/v1alpha1", field)
    assert "What it runs." in said
    file.write_text(kubectl.run("get", "crd", family.name, "-o", "json"))
    said = kubectl.run("replace", "-f", str(file)).strip()
    assert said == f"customresourcedefinition.apiextensions.k8s.io/{family.name} replaced"
    kubectl.run("delete", "crd", family.name)


def test_watch_and_delete(kubectl: Kubectl, group: str) -> None:
    """kubectl watches objects until their CRD is deleted, which deletes them."""
    family = define(kubectl, small.widget(group))
    with kubectl.start("get", full(family), "--watch", "-o", "name") as running:
        kubectl.apply(family.good[0])
        running.wait_for(f"widget.{group}/a")
        said = kubectl.run("delete", "crd", family.name).strip()
        assert said.startswith(f'customresourcedefinition.apiextensions.k8s.io "{family.name}"')
    assert "NotFound" in kubectl.fail("get", "crd", family.name)
    define(kubectl, family)
    assert kubectl.run("get", full(family), "-o", "name") == ""
    kubectl.run("delete", "crd", family.name)


def test_list_of_definitions(kubectl: Kubectl, group: str) -> None:
    """CRDs are listed with their creation time, and described with their conditions."""
    family = define(kubectl, small.minimal(group))
    lines = kubectl.run("get", "crd").splitlines()
    assert lines[0].split() == ["NAME", "CREATED", "AT"]
    assert any(line.startswith(family.name) for line in lines)
    described = kubectl.run("describe", "crd", family.name)
    assert "Reason:                InitialNamesAccepted" in described
    read: Any = kubectl.json("get", "crd", family.name, "-o", "json")
    assert read["status"]["storedVersions"] == ["v1"]
    kubectl.run("delete", "crd", family.name)
