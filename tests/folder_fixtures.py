"""What the tests of a folder share ends when they are over, not when all tests are.

A fixture with the scope `session` in a folder's conftest is usually a server or a store: a process,
which takes its share of the machine as long as it lives. The next tests are of another folder.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import pytest


class FolderFixtures:
    """Lets such fixtures end with their folder, as pytest does it for the scope `package` where a
    folder is one."""

    def __init__(self) -> None:
        self._folders: dict[str, pytest.Directory] = {}
        """Of the test that runs, by id: the ids of fixtures begin with one of these."""

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
                # Pytest ends it with the session, too; what has ended is not ended twice.
                folder.addfinalizer(partial(fixturedef.finish, request))
