"""One main server for all tests of aggregated servers; each test uses API groups of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.aggregated.stage import EVE_TOKEN
from tests.support.server_process import ServerProcess


@pytest.fixture(scope="session")
def main(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("aggregated")
    tokens = directory / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(f"{EVE_TOKEN},eve,1001\n")
    arguments = ["--token-auth-file", str(tokens)]
    with ServerProcess(directory / "main", arguments=arguments) as server:
        yield server
