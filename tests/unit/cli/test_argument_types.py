"""Argument types that several commands use."""

from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from restow.cli.argument_types import directory, port, whole_number
from restow.cli.main import main


def test_a_port_is_a_number_up_to_the_largest() -> None:
    """Leading zeros are ignored, and do not hide a number that is too large."""
    assert [port(text) for text in ("0", "65535", "0000443")] == [0, 65535, 443]
    for text in ("65536", "0000001234567", "-1", "", "http", "4_43", "٤", "9" * 5_000):
        with pytest.raises(ArgumentTypeError, match="is not a port number"):
            port(text)


def test_a_number_stands_within_its_bounds() -> None:
    """Both bounds are included."""
    read = whole_number(2, 1000, hint="; really")
    assert [read(text) for text in ("2", "1000", "0002")] == [2, 1000, 2]
    for text in ("1", "1001", "00000000001001", "2.0", "", "two", "9" * 5_000):
        with pytest.raises(ArgumentTypeError, match="is not a number from 2 to 1,000; really"):
            read(text)


def test_a_directory_is_there_or_can_be_made(tmp_path: Path) -> None:
    """Neither the path nor a parent of it is a file."""
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for good in (tmp_path, tmp_path / "new" / "newer", Path("new")):
        assert directory(str(good)) == good
    for bad in (file, file / "below", tmp_path / "link"):
        with pytest.raises(ArgumentTypeError, match="is not a directory"):
            directory(str(bad))


@pytest.mark.parametrize("command", ["serve", "up", "demo", "upgrade --rollback", "store up"])
def test_a_file_is_no_data_directory(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is printed before anything is started."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--data-dir", str(file)])
    assert ended.value.code == 2
    assert f"argument --data-dir: {file} is not a directory" in capsys.readouterr().err
