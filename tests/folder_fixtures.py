"""Ends the fixtures that the tests of a folder share after its last test, not after all tests.

A fixture with scope `session` in a folder's conftest is usually a server or a store: a process that
uses CPU and memory while it runs. The next tests are in another folder.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import pytest


class FolderFixtures:
    """Ends such fixtures with their folder, as pytest does for the scope `package` if the folder
    is a package."""

    def __init__(self) -> None:
        self._folders: dict[str, pytest.Directory] = {}
        """The running test's node ID; the base IDs of its fixtures are prefixes of it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        nodes = item.listchain()
        self._folders = {node.nodeid: node for node in nodes if isinstance(node, pytest.Directory)}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: Any
    ) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            folder = self._folders.get(fixturedef.baseid)
            if fixturedef.scope == "session" and folder is not None:
                # Pytest also finishes it with the session; finishing twice has no effect.
                folder.addfinalizer(partial(fixturedef.finish, request))
