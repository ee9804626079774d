"""An invalid file is rejected with messages that contain no secrets."""

from __future__ import annotations

import base64
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from restow.encryption.configuration import ConfigurationRefused, read_configuration

SECRET: Final = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ="
FILE: Final = """apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm:
      keys:
      - {name: k1, secret: %s}
  - kms: {apiVersion: v2, name: vault, endpoint: 'unix:///a', timeout: 3s}
  - identity: {}
"""
KEY: Final = "{name: k1, secret: %s}"
PIECE: Final = 12
"""So many consecutive characters of a secret are a leak."""


def problems_of(text: str) -> str:
    """The problems of a file; empty: none."""
    try:
        read_configuration(text.encode())
    except ConfigurationRefused as error:
        return str(error)
    return ""


def leaks(text: str, secret: str) -> bool:
    return any(
        secret[begin : begin + PIECE] in text for begin in range(max(1, len(secret) - PIECE + 1))
    )


SLIPS: Final = [
    (KEY, "{name: k1, secret:%s}"),
    (KEY, "{name: k1, secret %s}"),
    (KEY, "{name: k1, %s: secret}"),
    (KEY, "{name: k1, secret: !%s x}"),
    (KEY, "{name: k1, secret: !%s [x]}"),
    (KEY, "{name: k1, secret: !!int %s}"),
    (KEY, "{name: k1, secret: &%s}"),
    (KEY, "{name: k1, secret: *%s}"),
    (KEY, "{name: k1, secret: {%s: 1}}"),
    (KEY, "{name: k1, secret: 1, %s: 1, %s: 2}"),
    (KEY, "{name: '%s:', secret: k1}"),
    (KEY, "{name: %s, secret: MTIzNDU2Nzg5MDEyMzQ1Ng==}, {name: %s, secret: k1}"),
    (KEY, "%s"),
    ("timeout: 3s", "timeout: %s"),
    ("timeout: 3s", "cachesize: %s"),
    ("apiVersion: v2", "apiVersion: %s"),
    ("name: vault", "name: '%s:'"),
    ("unix:///a", "%s"),
    ("unix:///a", "%s://a"),
    ("unix:///a", "unix://%s"),
    ("identity: {}", "identity: {%s: 1}"),
    ("identity: {}", "%s: {}"),
    ("identity: {}", "%s"),
    ("[secrets]", "[%s]"),
    ("[secrets]", "['%s', '%s']"),
    ("  providers:", "  %s: 1\n  providers:"),
    ("kind:", "%s: 1\n%s: 2\nkind:"),
    ("kind:", "!%s kind:"),
    ("EncryptionConfiguration", "%s"),
]


@pytest.mark.parametrize(("place", "slip"), SLIPS)
def test_misplaced_secrets(place: str, slip: str) -> None:
    """A misplaced secret is rejected, and not shown."""
    text = problems_of(FILE.replace(place, slip).replace("%s", SECRET))
    assert text
    assert not leaks(text, SECRET)


def test_the_path_of_a_mistake_is_reported() -> None:
    """Its path is still reported, with the reason why the value is not shown."""
    text = problems_of(FILE.replace(KEY, "{name: k1, secret:%s}").replace("%s", SECRET))
    assert "keys[0].(not shown: it may be a secret): unknown field" in text
    text = problems_of(FILE.replace(KEY, "{name: k1, secret: !%s x}").replace("%s", SECRET))
    assert text == "line 8: a value or a tag is not accepted (not shown: it may be a secret)"


@given(
    secret=st.sampled_from([16, 24, 32]).flatmap(
        lambda size: st.binary(min_size=size, max_size=size)
    ),
    cut=st.integers(0, len(FILE)),
    drop=st.integers(0, 12),
    around=st.tuples(
        st.sampled_from(["", "!", "&", "*", "!!", "- ", "secret:", "{", "[", "'", '"', "\n", ": "]),
        st.sampled_from(["", ": ", ":", " x", "}", "]", "'", '"', "\n", ", "]),
    ),
    times=st.integers(1, 2),
)
@example(secret=bytes(32), cut=FILE.index("secret: "), drop=8, around=("", ""), times=1)
def test_a_secret_anywhere(
    secret: bytes, cut: int, drop: int, around: tuple[str, str], times: int
) -> None:
    """Wherever a secret is inserted into a file, or parts are deleted, no error shows it."""
    word = base64.b64encode(secret).decode()
    inserted = f"{around[0]}{word}{around[1]}" * times
    text = problems_of((FILE[:cut] + inserted + FILE[cut + drop :]).replace("%s", word))
    assert not leaks(text, word)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "the file is not UTF-8"),
        (b"a: [", "the file is not YAML: "),
        (b"[]", "the file must hold a JSON object"),
        (b"a: &x 1\nb: *x", "an alias is not accepted"),
        (b"a: 1\n---\nb: 1", "a second document is not accepted"),
        (b"<<: {a: 1}", "a merge key is not accepted"),
        (b"~: 1", "a key that is null is not accepted"),
        (b"[a]: 1", "a key that is not a scalar is not accepted"),
    ],
)
def test_messages_that_quote_nothing_are_shown(content: bytes, problem: str) -> None:
    """The YAML reader's messages about the form of the file stay as they are."""
    with pytest.raises(ConfigurationRefused, match=problem):
        read_configuration(content)
