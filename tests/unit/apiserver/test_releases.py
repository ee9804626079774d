"""Which release is meant by what a person writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from restow.apiserver.releases import find_release
from restow.kinds.releases import ReleaseError


@pytest.mark.parametrize("text", ["x+9", "1.27", "v1.27.3", "nonsense"])
def test_a_name_that_is_none_is_answered_with_those_there_are(text: str) -> None:
    """Who mistypes a name is told the names, not that a file is missing."""
    with pytest.raises(ReleaseError, match=r"one of builtin, .*kubernetes-1\.27.*x\+1"):
        find_release(Path(text))


@pytest.mark.parametrize("text", ["none.yaml", "dir/none", "/none.json"])
def test_a_file_that_is_not_there_is_called_by_its_name(text: str) -> None:
    """What can only be a file is looked for as one."""
    with pytest.raises(ReleaseError, match=rf"{text}: cannot be read: No such file"):
        find_release(Path(text))
