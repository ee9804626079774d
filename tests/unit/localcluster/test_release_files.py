"""Release files of a cluster are kept by content."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from restow.kinds.releases import ReleaseError
from restow.localcluster.layout import Layout
from restow.localcluster.release_files import (
    copy_problem,
    keep_release,
    original_notice,
    release_label,
    release_of,
    restore_copy,
    rollback_notices,
    settle_releases,
    with_file,
)
from restow.localcluster.rolling_upgrade import plan_upgrade
from restow.localcluster.state import ClusterState, ServerState, Upgrade, read_state, write_state
from tests.unit.localcluster.test_rolling_upgrade import overview

FIRST = "release: mine\nkinds: []\n"
SECOND = "release: mine\nbuiltins: required\nkinds: []\n"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "d")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(FIRST)
    return path


def state_of(release: str, **files: str) -> ClusterState:
    return ClusterState(
        store="sqlite",
        bind="127.0.0.1",
        front_port=1,
        servers=(ServerState(port=2, release=release),),
        upgrade=Upgrade(target=release, origins=(release,)),
        release_files=files,
    )


def test_a_file_is_copied_by_content(layout: Layout, file: Path) -> None:
    """The copy is named by the SHA-256, private, and kept when the original is edited."""
    kept = Path(keep_release(str(file), layout))
    assert kept == layout.releases / f"{hashlib.sha256(FIRST.encode()).hexdigest()}.yaml"
    assert kept.stat().st_mode & 0o777 == 0o600
    file.write_text(SECOND)
    assert kept.read_text() == FIRST
    assert keep_release(str(kept), layout) == str(kept)
    assert keep_release("x+1", layout) == "x+1"


def test_an_edited_file_is_another_release(layout: Layout, file: Path) -> None:
    """There are no steps only if the content is the same, whatever the path."""
    kept = keep_release(str(file), layout)
    other = file.with_name("same.yaml")
    other.write_text(FIRST)
    assert plan_upgrade(overview(kept), keep_release(str(other), layout)) == []
    file.write_text(SECOND)
    assert len(plan_upgrade(overview(kept), keep_release(str(file), layout))) == 1


def test_a_wrong_file_is_refused(layout: Layout, file: Path) -> None:
    """An unreadable or invalid file is not kept, with the reason."""
    file.write_text("kinds: 7\n")
    with pytest.raises(ReleaseError, match=r"mine\.yaml"):
        keep_release(str(file), layout)
    file.unlink()
    with pytest.raises(ReleaseError, match="cannot be read"):
        keep_release(str(file), layout)
    with pytest.raises(ReleaseError, match="unknown release 'nonsense'"):
        keep_release("nonsense", layout)
    assert not layout.releases.exists()


def test_a_state_of_an_earlier_restow_is_settled(layout: Layout, file: Path) -> None:
    """Files that it names are copied; it lacks the field for them, and is read anyway."""
    layout.data_dir.mkdir()
    fields = msgspec.to_builtins(state_of(str(file)))
    del fields["release_files"]
    layout.state.write_bytes(msgspec.json.encode(fields))
    found = read_state(layout.state)
    assert found is not None
    settled = settle_releases(found, layout)
    kept = keep_release(str(file), layout)
    assert settled.servers[0].release == kept
    assert settled.upgrade == Upgrade(target=kept, origins=(kept,))
    assert settled.release_files == {Path(kept).stem: str(file)}
    write_state(layout.state, settled)
    assert read_state(layout.state) == settled


def test_a_moved_data_directory_keeps_its_copies(layout: Layout, file: Path) -> None:
    """Copies are looked up in the directory in use, and restored from the same original."""
    kept = Path(keep_release(str(file), layout))
    found = state_of(str(kept), **{kept.stem: str(file)})
    moved = Layout(layout.data_dir.with_name("moved"))
    layout.data_dir.rename(moved.data_dir)
    assert settle_releases(found, moved).servers[0].release == str(moved.releases / kept.name)
    (moved.releases / kept.name).unlink()
    assert release_of(settle_releases(found, moved).servers[0].release).name == "mine"


@pytest.mark.parametrize("change", ["missing", "edited"])
def test_a_copy_that_cannot_be_made_again_is_refused(
    layout: Layout, file: Path, change: str
) -> None:
    """A start without the content that the servers ran is refused with the name of the needed
    file; a missing file of the last upgrade does not prevent it."""
    kept = Path(keep_release(str(file), layout))
    found = state_of(str(kept), **{kept.stem: str(file)})
    file.write_text(SECOND)
    if change == "missing":
        kept.unlink()
    else:
        kept.write_text(SECOND)
    with pytest.raises(ReleaseError, match=kept.stem):
        settle_releases(found, layout)
    other = msgspec.structs.replace(found, servers=(ServerState(port=2, release="x"),))
    assert settle_releases(other, layout).upgrade == found.upgrade


def test_a_changed_original_is_told(layout: Layout, file: Path) -> None:
    """For an edited or missing file: what runs, and how to upgrade to the new content."""
    kept = keep_release(str(file), layout)
    files = with_file({}, kept, str(file))
    assert original_notice(kept, files) == ""
    assert original_notice("x", files) == ""
    file.write_text(SECOND)
    assert f"restow upgrade --to {file}" in original_notice(kept, files)
    file.unlink()
    assert f"{file} cannot be read" in original_notice(kept, files)
    assert release_label(kept, files) == f"mine.yaml (sha256 {Path(kept).stem[:12]})"
    assert release_label("x+1", files) == "x+1"


@pytest.mark.parametrize("change", ["missing", "edited"])
def test_a_copy_that_is_not_as_it_was(layout: Layout, file: Path, change: str) -> None:
    """It is restored from an unchanged original; otherwise the remedy is named."""
    kept = Path(keep_release(str(file), layout))
    files = with_file({}, str(kept), str(file))
    rolled = Upgrade(target="x", origins=(str(kept),))
    state = msgspec.structs.replace(state_of("x", **files), upgrade=rolled)
    assert copy_problem(str(kept), files) == ""
    assert copy_problem("x", files) == ""

    def damage() -> None:
        kept.unlink()
        if change == "edited":
            kept.write_text(SECOND)

    damage()
    assert copy_problem(str(kept), files) == ""
    restore_copy(str(kept), files)
    assert kept.read_text() == FIRST
    assert list(rollback_notices(state)) == []
    damage()
    file.unlink()
    remedy = f"restore the file with the SHA-256 in its name, as it was copied from {file}"
    assert remedy in copy_problem(str(kept), files)
    (notice,) = rollback_notices(state)
    assert notice.startswith("a rollback of the last upgrade is not possible: ")
    assert remedy in notice
    with pytest.raises(ReleaseError, match="restore the file"):
        restore_copy(str(kept), files)
