"""A browser for all tests of the dashboard, and clusters that it displays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Final

import pytest

from restow.aio import Runtime
from restow.apiserver.pki import PkiOptions, ensure_pki
from tests.e2e.dashboard.browser import Browser, Page, start_browser
from tests.e2e.storageversion.clusters import Cluster
from tests.support.server_process import ServerProcess

_NUMBERS: Final = count(1)

NewCluster = Callable[[], Cluster]


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with start_browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """The browser without pages; pages are closed after each test."""
    yield one_browser
    one_browser.close_pages()


@pytest.fixture(scope="module")
def new_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewCluster]:
    """Creates clusters without servers, each with a separate database; all end with the module."""
    keys = tmp_path_factory.mktemp("keys") / "pki"
    ensure_pki(keys, Runtime.system(), PkiOptions(bind="127.0.0.1"))
    with ExitStack() as stack:

        def make() -> Cluster:
            directory = tmp_path_factory.mktemp(f"dashboard-{next(_NUMBERS)}")
            cluster = Cluster(directory, f"sqlite:{directory / 'store.db'}", keys)
            stack.callback(cluster.close)
            return cluster

        yield make


def open_page(page: Page, server: ServerProcess) -> None:
    """Open the dashboard of a server with a link, as `restow up` prints it."""
    page.goto(link_to(server))
    confirm(page)
    wait_live(page)


def confirm(page: Page) -> None:
    """Sign in with the link that the page was opened with."""
    page.wait("!document.getElementById('confirm').hidden", "the page asks before it signs in")
    page.click("#confirm-yes")


def link_to(server: ServerProcess) -> str:
    code, answer = server.request("POST", "/dashboard/tickets")
    assert code == 201, answer
    return str(json.loads(answer)["url"])


def wait_live(page: Page) -> None:
    page.wait("document.getElementById('state').dataset.state === 'live'", "the page is live")
    page.wait("document.querySelector('#matrix tbody tr')", "resources are shown")
    page.wait(
        "[...document.querySelectorAll('#matrix .chip')].every((e) => !e.innerText.endsWith('='))",
        "hashes have names",
    )


def row_of(page: Page, resource: str) -> dict[str, str]:
    """A row of the matrix: the text of each cell, by column name."""
    script = f"""(() => {{
      const row = document.querySelector('#matrix tr[data-resource="{resource}"]');
      const names = [...document.querySelectorAll('#matrix thead th')]
        .map((each) => each.firstChild.textContent);
      const text = (cell) =>
        [...cell.children].map((each) => each.innerText).join(" ") || cell.innerText;
      return Object.fromEntries([...row.cells].map((each, index) => [names[index], text(each)]));
    }})()"""
    return dict(page.evaluate(script))


def assert_clean(page: Page, server_url: str) -> None:
    """No script failed, the policy blocked nothing, and no other host was contacted."""
    assert page.problems == []
    assert [url for url in page.urls if not url.startswith((server_url, "about:"))] == []
