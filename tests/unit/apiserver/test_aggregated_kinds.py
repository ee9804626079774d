"""Kinds from files of CRDs: the resulting resources, and error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from restow.apiserver.aggregated_kinds import KindsError, load_kinds, read_kinds

DEFINITION = b"""\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: parts.example.com}
spec:
  group: example.com
  names: {kind: Part, plural: parts, shortNames: [pt]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
OTHER = DEFINITION.replace(b"parts", b"tools").replace(b"kind: Part", b"kind: Tool")
WEBHOOK = (
    b"conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1],"
    b" clientConfig: {url: 'https://converter.example.com'}}}\n  scope"
)


def test_a_definition_becomes_a_kind() -> None:
    """Versions, names, subresources and the storage version are those of the file; there is no CRD
    object that could change."""
    [part] = read_kinds(b"# nothing\n---\n" + DEFINITION + b"---\n", source="file")
    assert (part.group, part.plural, part.kind.short_names) == ("example.com", "parts", ("pt",))
    assert part.served == ("v1", "v1beta1")
    assert part.storage_api_version == "example.com/v1"
    assert [each.name for each in part.subresources("v1")] == ["status"]
    assert part.subresources("v1beta1") == ()
    assert part.origin is None
    assert part.is_custom


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (DEFINITION.replace(b"  scope: Namespaced\n", b""), "spec.scope: Required value"),
        (DEFINITION.replace(b"scope:", b"scoop: 1\n  scope:"), "unknown fields: spec.scoop"),
        (DEFINITION.replace(b"scope", WEBHOOK), "Webhook is not supported"),
        (DEFINITION + b"---\nkind: Secret\n", "document 2: Secret of None is not a CustomResource"),
        (b"[]", "document 1: "),
        (b"a: b: c", "document 1: the body is not YAML"),
    ],
)
def test_invalid_kinds_are_reported(content: bytes, why: str) -> None:
    """A file without a valid kind is rejected with the document's number and the reason."""
    with pytest.raises(KindsError) as refused:
        read_kinds(content, source="file")
    assert str(refused.value).startswith("file, ")
    assert why in str(refused.value)


def test_a_directory_is_read_whole(tmp_path: Path) -> None:
    """All files are read, in the order of their names; a duplicate kind is rejected."""
    (tmp_path / "b.yaml").write_bytes(DEFINITION)
    (tmp_path / "a.yml").write_bytes(OTHER)
    (tmp_path / "notes.txt").write_text("no kind")
    assert [each.plural for each in load_kinds(tmp_path)] == ["tools", "parts"]
    (tmp_path / "c.yaml").write_bytes(DEFINITION)
    with pytest.raises(KindsError, match=r"defined more than once: parts\.example\.com"):
        load_kinds(tmp_path)


def test_nothing_to_serve_is_refused(tmp_path: Path) -> None:
    """A missing file and an empty one give different errors."""
    with pytest.raises(KindsError, match="cannot be read: No such file"):
        load_kinds(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    with pytest.raises(KindsError, match="contains no CustomResourceDefinition"):
        load_kinds(tmp_path / "empty.yaml")
