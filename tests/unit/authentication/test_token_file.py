"""The token file: parsing, and errors that do not reveal a token."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from restow.authentication import read_token_file
from restow.authentication.tokens import TOKEN_FILE_BYTES_MAX, TOKEN_LENGTH_MAX
from restow.request.context import User

SECRET = "s3cr3t-t0ken"


def test_tokens_are_read_like_in_kube_apiserver(tmp_path: Path) -> None:
    """Token, name, uid, and groups in one column; empty tokens and lines are ignored."""
    path = tmp_path / "tokens.csv"
    path.touch(mode=0o600)
    path.write_text(
        'a,ann,1\r\nb,bob,2,"x,y"\n\n,nobody,3\nc,"Cäsar, C.",,z,more\n"d""d",dora,4,\n'
    )
    assert read_token_file(path) == {
        "a": User("ann", (), "1"),
        "b": User("bob", ("x", "y"), "2"),
        "c": User("Cäsar, C.", ("z",), ""),
        'd"d': User("dora", (), "4"),
    }


BAD: dict[str, tuple[str | bytes, str]] = {
    "two columns": (f"a,ann,1\n{SECRET},bob\n", "line 2: at least 3 columns"),
    "one column": (f"{SECRET}\n", "line 1: at least 3 columns"),
    "no name": (f"{SECRET},,1\n", "line 1: the user name is empty"),
    "a token twice": (f"{SECRET},a,1\nb,b,2\n{SECRET},c,3\n", "line 3: duplicate token"),
    "spaces around": (f" {SECRET},a,1\n", "line 1: the token contains"),
    "a control character": (f"{SECRET}\x07,a,1\n", "line 1: the token contains"),
    "too long": (f"{SECRET}{'x' * TOKEN_LENGTH_MAX},a,1\n", "line 1: the token contains"),
    "a quote that does not end": (f'a,b,1\n"{SECRET},a,1\n', "line 2: unexpected end of data"),
    "text behind a quote": (f'"{SECRET}"x,a,1\n', "line 1: "),
    "other bytes": (b"a,b,1\n" + SECRET.encode() + b"\xff,c,2\n", "line 2: not UTF-8"),
    "too large": (f"{SECRET},a,1\n" + "#" * TOKEN_FILE_BYTES_MAX, "more than"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_by_its_line(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message has the line number; neither it nor the log contains a token."""
    content, why = BAD[case]
    path = tmp_path / "tokens.csv"
    path.touch(mode=0o600)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with caplog.at_level(logging.DEBUG), pytest.raises(ValueError, match=why) as refused:
        read_token_file(path)
    assert str(path) in str(refused.value)
    assert SECRET not in str(refused.value) + caplog.text
