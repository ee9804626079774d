"""Resolving `--release` to a file or a shipped release."""

from __future__ import annotations

from pathlib import Path

import pytest

from restow.apiserver.releases import find_release
from restow.kinds.releases import ReleaseError


@pytest.mark.parametrize("text", ["x+9", "1.27", "v1.27.3", "nonsense"])
def test_an_unknown_name_lists_the_known_ones(text: str) -> None:
    """A mistyped name is answered with the known names, not with a missing file."""
    with pytest.raises(ReleaseError, match=r"one of builtin, .*kubernetes-1\.27.*x\+1"):
        find_release(Path(text))


@pytest.mark.parametrize("text", ["none.yaml", "dir/none", "/none.json"])
def test_a_missing_file_is_named(text: str) -> None:
    """A value with a file suffix is treated as a file."""
    with pytest.raises(ReleaseError, match=rf"{text}: cannot be read: No such file"):
        find_release(Path(text))
