"""Releases: the shipped ones are valid, and errors in a file have their line."""

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.kinds.builtin import all_kinds
from restow.kinds.releases import (
    FILE_SIZE_MAX,
    Release,
    ReleaseError,
    default_release,
    load_release,
    parse_release,
    shipped_release,
    shipped_releases,
)

WIDGET = """\
release: x+1
kinds:
  - group: example.com
    kind: Widget
    plural: widgets
    scope: Namespaced
    versions:
      - {name: v1, served: true, decodable: true}
      - {name: v2, served: false}
    storage: v1
    conversion: rename
    schema: open
"""


def read(text: str) -> Release:
    """Returns a release from a file called `file.yaml`."""
    return parse_release(text.encode(), "file.yaml")


def versions(release: str, group: str, kind: str) -> tuple[tuple[str, ...], str]:
    """Returns the served versions of a kind in a shipped release, and its storage version."""
    found = shipped_release(release).kind(group, kind)
    assert found is not None
    return found.served_versions, found.storage_api_version


def test_default_release() -> None:
    """Without a file a release has every built-in kind."""
    release = default_release()
    assert [kind.definition for kind in release.kinds] == list(all_kinds())
    for kind in release.kinds:
        assert set(kind.served_versions) == set(kind.definition.served_versions)
        assert kind.storage == kind.definition.storage_version


@pytest.mark.parametrize(
    ("release", "served", "storage"),
    [
        ("x", ("v1",), "example.com/v1"),
        ("x+1", ("v1", "v2"), "example.com/v1"),
        ("x+2", ("v2", "v1"), "example.com/v2"),
        ("x+3", ("v2",), "example.com/v2"),
    ],
)
def test_fastest_evolution(release: str, served: tuple[str, ...], storage: str) -> None:
    """Four releases migrate a kind from v1 to v2, as in the table of KEP-1201."""
    assert versions(release, "example.com", "Widget") == (served, storage)


@pytest.mark.parametrize(
    ("release", "group", "kind", "served", "storage"),
    [
        ("kubernetes-1.21", "batch", "CronJob", ("v1", "v1beta1"), "batch/v1beta1"),
        ("kubernetes-1.22", "batch", "CronJob", ("v1", "v1beta1"), "batch/v1"),
        ("kubernetes-1.24", "batch", "CronJob", ("v1", "v1beta1"), "batch/v1"),
        ("kubernetes-1.25", "batch", "CronJob", ("v1",), "batch/v1"),
        (
            "kubernetes-1.24",
            "policy",
            "PodDisruptionBudget",
            ("v1", "v1beta1"),
            "policy/v1beta1",
        ),
        ("kubernetes-1.25", "policy", "PodDisruptionBudget", ("v1",), "policy/v1beta1"),
        ("kubernetes-1.27", "policy", "PodDisruptionBudget", ("v1",), "policy/v1"),
        (
            "kubernetes-1.26",
            "autoscaling",
            "HorizontalPodAutoscaler",
            ("v2", "v1"),
            "autoscaling/v1",
        ),
        (
            "kubernetes-1.27",
            "autoscaling",
            "HorizontalPodAutoscaler",
            ("v2", "v1"),
            "autoscaling/v2",
        ),
        ("kubernetes-1.36", "events.k8s.io", "Event", ("v1",), "v1"),
    ],
)
def test_real_steps(
    release: str, group: str, kind: str, served: tuple[str, ...], storage: str
) -> None:
    """Real releases have their historical served and storage versions."""
    assert versions(release, group, kind) == (served, storage)


@pytest.mark.parametrize(
    "steps",
    [
        ("x", "x+1", "x+2", "x+3"),
        ("kubernetes-1.21", "kubernetes-1.22"),
        tuple(f"kubernetes-1.{minor}" for minor in range(24, 29)),
    ],
)
def test_neighbours_can_run_together(steps: tuple[str, ...]) -> None:
    """Of two consecutive releases, each decodes the storage versions of the other."""
    for first, second in pairwise(steps):
        for one, other in ((first, second), (second, first)):
            for kind in shipped_release(one).kinds:
                group, name = kind.definition.store
                peer = shipped_release(other).kind(group, name)
                if peer is not None:
                    assert kind.storage in peer.decodable_versions


def test_shipped_releases_are_named_like_their_files() -> None:
    """Every file in the package is valid, and has its own name."""
    names = shipped_releases()
    assert {"x", "x+1", "x+2", "x+3", "kubernetes-1.24", "kubernetes-1.25"} <= set(names)
    for name in names:
        assert shipped_release(name).name == name
        required = [kind for kind in all_kinds() if kind.required]
        assert all(shipped_release(name).kind(*kind.group_kind) for kind in required)


def test_open_kind() -> None:
    """A data-only kind has its own keys, and its conversion changes only the version."""
    kind = read(WIDGET).resource("example.com", "widgets")
    assert kind is not None
    assert kind.definition.key_prefix == "example.com/widgets"
    assert kind.definition.served_versions == ("v1",)
    assert kind.decodable_versions == ("v1", "v2")
    obj = {"kind": "Widget", "apiVersion": "example.com/v1", "spec": 1}
    assert kind.converter().convert(obj, "example.com/v1", "example.com/v2") == {
        **obj,
        "apiVersion": "example.com/v2",
    }


def test_builtin_kind_as_open() -> None:
    """A built-in kind may be replaced by a data-only kind with other versions, at its own keys."""
    text = """
release: a
kinds:
  - {group: batch, kind: CronJob, plural: cronjobs, scope: Namespaced, storage: v2alpha1,
     versions: [{name: v2alpha1}, {name: v2beta1}], conversion: rename, schema: open}
"""
    kind = read(text).kind("batch", "CronJob")
    assert kind is not None
    assert kind.definition.key_prefix == "cronjobs"
    assert kind.served_versions == ("v2alpha1", "v2beta1")
    assert kind.storage_api_version == "batch/v2alpha1"


def test_unlisted_builtin_kinds() -> None:
    """The other built-in kinds stay, or only those that a server needs."""
    assert len(read(WIDGET).kinds) == len(all_kinds()) + 1
    few = read(WIDGET.replace("kinds:", "builtins: required\nkinds:"))
    assert few.kind("apps", "Deployment") is None
    assert few.kind("", "Namespace") is not None
    assert few.kind("authorization.k8s.io", "SubjectAccessReview") is not None


CRONJOB = (
    "release: a\nkinds:\n"
    "  - {group: batch, kind: CronJob, plural: cronjobs, scope: Namespaced,\n"
    "     versions: [{name: v1}],\n"
    "     storage: v1}\n"
)
LEASE = (
    "release: a\nkinds:\n"
    "  - {group: coordination.k8s.io, kind: Lease, plural: leases, scope: Namespaced,\n"
    "     versions: [{name: v1}, {name: v1beta1}],\n"
    "     storage: v1beta1}\n"
)
SPECS = (
    "release: a\nkinds:\n"
    "  - {group: services, kind: Spec, plural: specs, scope: Namespaced, schema: open,\n"
    "     versions: [{name: v1}], storage: v1}\n"
)
EVENT = (
    "release: a\nkinds:\n"
    "  - {group: events.k8s.io, kind: Event, plural: events, scope: Namespaced,\n"
    "     versions: [{name: v1}], storage: v1beta1}\n"
)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (WIDGET.replace("    schema: open\n", ""), 4, "unknown kind Widget in group 'example.com'"),
        (CRONJOB.replace("name: v1", "name: v7"), 4, "CronJob has no version v7; it has v1,"),
        (WIDGET.replace("storage: v1", "storage: v3"), 10, "v3 is not among the versions"),
        (
            WIDGET.replace("served: false", "served: false, decodable: false").replace(
                "storage: v1", "storage: v2"
            ),
            10,
            "the storage version v2 is not decodable",
        ),
        (WIDGET.replace("served: true, decodable: true", "decodable: false"), 8, "impossible"),
        (WIDGET.replace("name: v2", "name: v1"), 9, "duplicate version v1"),
        (WIDGET + WIDGET.partition("kinds:\n")[2], 13, "duplicate kind Widget.example.com"),
        (
            WIDGET + WIDGET.partition("kinds:\n")[2].replace("Widget", "Gadget"),
            13,
            "two kinds have the plural widgets.example.com",
        ),
        (WIDGET + "    colour: red\n", 13, "unknown key `colour`; a kind has group, kind,"),
        (WIDGET + "    storage: v1\n", 13, "duplicate key `storage`"),
        (WIDGET.replace("    storage: v1\n", ""), 3, "`storage` is missing"),
        (WIDGET.replace("served: true", "served: maybe"), 8, "`served` must be true or false"),
        (
            WIDGET.replace("Namespaced", "Everywhere"),
            6,
            "`scope` must be one of Cluster, Namespaced",
        ),
        (WIDGET.replace("    scope: Namespaced\n", ""), 3, "`scope` is missing"),
        (WIDGET.replace("rename", "builtin"), 11, "an open kind has no built-in conversion"),
        (WIDGET.replace("rename", "none"), 11, "without a conversion only one version is allowed"),
        (WIDGET.replace("group: example.com", "group: Example"), 3, "group 'Example'"),
        (WIDGET.replace("kind: Widget", "kind: widget"), 4, "'widget' is not a valid kind"),
        (WIDGET.replace("plural: widgets", "plural: w_s"), 5, "plural 'w_s'"),
        (WIDGET.replace("name: v2", "name: V2"), 9, "version 'V2'"),
        (WIDGET.replace("x+1", "a b"), 1, "`release: a b` is no valid name"),
        (WIDGET.replace("release: x+1\n", ""), 1, "`release` is missing"),
        (WIDGET.replace("Widget", "[a]"), 4, "`kind` must be a string"),
        (CRONJOB.replace("plural: cronjobs", "plural: jobs"), 3, "the plural of CronJob is cronj"),
        (CRONJOB.replace("Namespaced", "Cluster"), 3, "the scope of CronJob is Namespaced"),
        (CRONJOB.replace("storage: v1", "storage: v1, conversion: rename"), 5, "use `builtin`"),
        (CRONJOB.replace("name: v1", "name: v1, served: false"), 4, "no version is served"),
        (LEASE, 5, "Lease is stored as v1 in every release"),
        (
            LEASE.replace("v1beta1}\n", "v1, schema: open}\n"),
            5,
            "cannot be open: the servers agree",
        ),
        (SPECS, 3, "overlaps with that of another kind"),
        (
            CRONJOB.replace("kind: CronJob", "kind: Clock").replace(
                "storage: v1", "storage: v1, schema: open"
            ),
            3,
            "two kinds have the plural cronjobs.batch",
        ),
        (EVENT, 4, "Event is stored as v1 of another group"),
        (EVENT.replace("v1beta1}\n", "v1, schema: open}\n"), 4, "another group shares its store"),
        ("- a\n", 1, "a release must be a mapping"),
        ("release: a\nkinds: 1\n", 2, "`kinds` must be a list"),
        ("release: a\nkinds:\n  - 1\n", 3, "a kind must be a mapping"),
        ("release: a\nkinds: &k [*k]\n", 2, "aliases are not supported"),
        ("release: a\n---\nrelease: b\n", 2, "a file must contain one document"),
        ("release: [\n\n", 3, "is not YAML"),
        ("[" * 100_000, 1, "is nested too deep"),
    ],
)
def test_wrong_files(text: str, line: int, why: str) -> None:
    """The error has the file, the line, and the expected value."""
    with pytest.raises(ReleaseError) as caught:
        read(text)
    assert str(caught.value).startswith(f"file.yaml:{line}: ")
    assert why in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is missing, empty or too large is reported by name."""
    with pytest.raises(ReleaseError, match=r"none\.yaml: cannot be read: No such file"):
        load_release(tmp_path / "none.yaml")
    file = tmp_path / "some.yaml"
    file.write_text(WIDGET)
    assert load_release(file).name == "x+1"
    file.write_text("")
    with pytest.raises(ReleaseError, match="is empty"):
        load_release(file)
    file.write_bytes(b"#" * (FILE_SIZE_MAX + 1))
    with pytest.raises(ReleaseError, match="is larger than"):
        load_release(file)
    with pytest.raises(ReleaseError, match="unknown release 'y'; shipped releases: builtin"):
        shipped_release("y")


@given(st.one_of(st.binary(), st.text().map(str.encode), st.sampled_from(WIDGET.splitlines())))
def test_any_bytes(data: bytes | str) -> None:
    """Any file content is a release or is rejected."""
    text = data if isinstance(data, bytes) else WIDGET.replace(data, "").encode()
    with suppress(ReleaseError):
        assert parse_release(text, "file.yaml").kinds


def test_many_kinds() -> None:
    """A release may have hundreds of generated kinds."""
    head, _, kind = WIDGET.partition("kinds:\n")
    many = "".join(
        kind.replace("Widget", f"Widget{index}").replace("widgets", f"widgets{index}")
        for index in range(500)
    )
    assert len(read(f"{head}kinds:\n{many}").kinds) == len(all_kinds()) + 500
