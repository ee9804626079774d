"""The files of the dashboard: types, ETags, and no inline code or foreign hosts."""

from __future__ import annotations

import re

import pytest

from restow.dashboard import INDEX, load_assets
from restow.dashboard.assets import POLICY, TYPES

ASSETS = load_assets()
SCRIPTS = sorted(path for path in ASSETS if path.endswith(".js"))


def text_of(path: str) -> str:
    return ASSETS[path].body.decode()


def test_every_file_has_a_type_and_a_name_of_its_own() -> None:
    """Each file has the right media type, and an ETag computed from its bytes."""
    assert {INDEX, "style.css", "js/main.js", "icon.svg"} <= ASSETS.keys()
    for path, asset in ASSETS.items():
        assert asset.content_type == TYPES["." + path.rpartition(".")[2]]
    assert len({asset.etag for asset in ASSETS.values()}) == len(ASSETS)


def test_if_none_match() -> None:
    """If-None-Match matches one of several ETags, also a weak one, and no other."""
    asset = ASSETS[INDEX]
    assert asset.is_known_to(asset.etag)
    assert asset.is_known_to(f'"other", W/{asset.etag}')
    assert not asset.is_known_to('"other"')
    assert not asset.is_known_to(None)


def test_the_page_has_nothing_inline() -> None:
    """The page has no inline scripts, styles or handlers, which its policy forbids."""
    page = text_of(INDEX)
    assert re.search(r"<script(?![^>]*\bsrc=)", page) is None
    assert re.search(r"<style|\sstyle=|\son\w+=", page) is None
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("path", sorted(ASSETS))
def test_nothing_comes_from_elsewhere(path: str) -> None:
    """No file refers to another host; XML namespaces are not addresses."""
    text = text_of(path).replace("http://www.w3.org/2000/svg", "")
    assert re.search(r"https?:|//[a-z0-9.-]+\.[a-z]{2,}/|@import|url\(", text) is None


@pytest.mark.parametrize("path", SCRIPTS)
def test_data_never_becomes_markup(path: str) -> None:
    """No script can turn text into elements or code."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    assert re.search(forbidden, text_of(path)) is None


@pytest.mark.parametrize("path", [INDEX, *SCRIPTS])
def test_everything_that_is_named_is_there(path: str) -> None:
    """Every file that the page or a module refers to exists."""
    text, folder = text_of(path), path.rpartition("/")[0]
    for name in re.findall(r'"/dashboard/static/([^"]+)"', text):
        assert name in ASSETS, name
    for name in re.findall(r'from "([^"]+)"', text):
        parts = folder.split("/")
        for each in name.split("/"):
            if each == "..":
                parts.pop()
            elif each != ".":
                parts.append(each)
        assert "/".join(parts) in ASSETS, f"{path} imports {name}"


@pytest.mark.parametrize("path", SCRIPTS)
def test_every_element_that_is_asked_for_is_in_the_page(path: str) -> None:
    """Every element ID that a module uses is in the page."""
    ids = set(re.findall(r'\bid="([^"]+)"', text_of(INDEX)))
    assert set(re.findall(r'byId\("([^"]+)"\)', text_of(path))) <= ids
