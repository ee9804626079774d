"""The page for users: sign-in and sign-out, colours, widths, keyboard, many resources."""

from __future__ import annotations

import base64
import json
from typing import Final

import pytest

from tests.e2e.dashboard.browser import Browser, Page
from tests.e2e.dashboard.conftest import (
    NewCluster,
    assert_clean,
    confirm,
    link_to,
    open_page,
    wait_live,
)
from tests.e2e.storageversion.releases import write_release
from tests.support.server_process import ServerProcess

TAB: Final = 9
ENTER: Final = 13
OTHER_KINDS: Final = 300
STOPS_MAX: Final = 40
CONTRAST_MIN: Final = 4.5

# For every visible text: the contrast with its background.
LOW_CONTRASTS: Final = """(() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const found = channels(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const low = new Set();
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!own || !node.checkVisibility() || node.closest("svg, .off-screen, option")) continue;
    const text = channels(getComputedStyle(node).color);
    const [one, two] = [luminance(text), luminance(behind(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (two + 0.05);
    if (ratio < LIMIT) low.add(`${node.className || node.tagName} ${ratio.toFixed(2)}`);
  }
  return [...low];
})()""".replace("LIMIT", str(CONTRAST_MIN))

CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"

# Opens a watch with some WebSocket subprotocols, and records its messages.
WATCH: Final = """((protocols) => {
  window.messages = [];
  window.ended = null;
  const target = `wss://${location.host}PATH?watch=1&timeoutSeconds=600`;
  window.watch = new WebSocket(target, protocols);
  watch.onmessage = (message) => messages.push(JSON.parse(message.data));
  watch.onclose = (close) => { window.ended = [close.code, close.wasClean]; };
})""".replace("PATH", CONFIG_MAPS)


@pytest.fixture(scope="module")
def server(new_cluster: NewCluster, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    """A server with hundreds of resources."""
    folder = tmp_path_factory.mktemp("release")
    release = write_release(folder / "many.yaml", others=OTHER_KINDS, widgets="v1")
    return new_cluster().start(str(release))[0]


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Page:
    """A page of a signed-in user."""
    made = browser.page()
    open_page(made, server)
    return made


def focused(page: Page) -> str:
    """The focused element, by its ID or text."""
    script = (
        "(document.activeElement.id || document.activeElement.textContent"
        " || document.activeElement.tagName).trim()"
    )
    return str(page.evaluate(script))


def test_sign_in_by_token_and_sign_out(browser: Browser, server: ServerProcess) -> None:
    """With the keyboard alone: an invalid token gets an error message, a valid one signs in, the
    session survives a reload, no script can read it, and signing out ends it."""
    page = browser.page()
    page.goto(f"{server.url}/dashboard")
    page.wait("!document.getElementById('login').hidden", "the sign-in form is shown")
    assert focused(page) == "token"
    page.type("wrong")
    page.press("Enter", code=ENTER)
    page.wait("document.getElementById('login-error').textContent", "an invalid token is rejected")
    assert page.text("#login-error") == "This token is not valid for this cluster."
    assert page.problems == []
    assert len(page.failed_loads) == 1, "the refusal, which browsers log by themselves"
    page.evaluate("document.getElementById('token').select()")
    page.type(server.token)
    page.press("Enter", code=ENTER)
    wait_live(page)
    assert page.text("#who") == "restow-admin"
    assert (
        page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})")
        == "{}"
    )
    page.goto(f"{server.url}/dashboard/")
    wait_live(page)
    page.click("#leave")
    page.wait("!document.getElementById('login').hidden", "the user is signed out")
    page.goto(f"{server.url}/dashboard")
    page.wait("!document.getElementById('login').hidden", "the user is still signed out")
    assert_clean(page, server.url)


def test_a_link_can_be_used_once(browser: Browser, server: ServerProcess) -> None:
    """A link signs in without a token and is removed from the address; opened again in another
    browser it shows that it was used."""
    link = link_to(server)
    page = browser.page()
    page.goto(link)
    confirm(page)
    wait_live(page)
    assert page.evaluate("location.href") == f"{server.url}/dashboard"
    assert all(link.partition("#")[2] not in url for url in page.urls if "#" not in url)
    other = browser.page()
    other.goto(link)
    confirm(other)
    other.wait("document.getElementById('login-error').textContent", "the link is rejected")
    assert "already used" in other.text("#login-error")
    assert_clean(page, server.url)


def test_a_link_signs_in_only_when_the_user_agrees(browser: Browser, server: ServerProcess) -> None:
    """The page shows whose link it is. Without a click it signs in no user, and a session of
    another user continues after a refusal; the link can still be used then."""
    link = link_to(server)
    page = browser.page()
    page.goto(link)
    page.wait("!document.getElementById('confirm').hidden", "the page asks before it signs in")
    assert page.text("#confirm-user") == "restow-admin"
    assert focused(page) == "confirm-yes"
    session = "fetch('/dashboard/session').then((answer) => answer.json()).then(({user}) => user)"
    assert page.evaluate(session) is None
    page.click("#confirm-no")
    page.wait("!document.getElementById('login').hidden", "the sign-in form is shown")
    assert page.evaluate(session) is None
    page.goto(link)
    confirm(page)
    wait_live(page)
    assert page.evaluate(session) == "restow-admin"
    # The link of another user, which the browser is made to open.
    code, answer = server.request(
        "POST", "/dashboard/tickets", headers={"Impersonate-User": "mallory"}
    )
    assert code == 201, answer
    page.goto(json.loads(answer)["url"])
    page.wait("!document.getElementById('confirm').hidden", "the page asks again")
    assert page.text("#confirm-user") == "mallory"
    assert page.text("#confirm-current") == "You are signed in as restow-admin."
    page.click("#confirm-no")
    wait_live(page)
    assert page.text("#who") == "restow-admin"
    assert_clean(page, server.url)


def test_colours_follow_the_system_and_the_user(page: Page) -> None:
    """The system's color scheme, until the user selects another; every text is readable in both."""
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    assert page.evaluate(LOW_CONTRASTS) == []
    page.prefer(dark=True)
    dark = page.evaluate(ground)
    assert dark != light
    assert page.evaluate(LOW_CONTRASTS) == []
    page.click("#theme")
    assert (page.evaluate(ground), page.evaluate("document.documentElement.dataset.theme")) == (
        light,
        "light",
    )
    page.evaluate("location.reload()")
    wait_live(page)
    assert page.evaluate(ground) == light, "the choice is kept"
    page.click("#theme")
    assert page.evaluate(ground) == dark
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme === undefined")


def test_nothing_is_wider_than_the_screen(page: Page) -> None:
    """On a phone, a tablet and a desktop the page never scrolls sideways, and the matrix is
    visible."""
    for width in (360, 768, 1440):
        page.resize(width, 740)
        page.wait(f"innerWidth === {width}", "the window has this width")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelector('#matrix tbody tr').checkVisibility()")
        assert page.evaluate(LOW_CONTRASTS) == []


def test_keyboard_navigation(page: Page, server: ServerProcess) -> None:
    """Tab reaches every control in page order, each shows the focus, and a slash focuses the
    filter."""
    found: list[str] = []
    for _ in range(STOPS_MAX):
        page.press("Tab", code=TAB)
        found.append(focused(page))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"{found[-1]} does not show the focus"
        if found[-1] == "sort":
            break
    assert found == ["Skip to resources", "theme", "leave", "events", "filter", "differing", "sort"]
    page.evaluate("document.activeElement.blur()")
    page.press("/")
    assert focused(page) == "filter"
    assert page.evaluate("document.getElementById('filter').value") == ""
    assert_clean(page, server.url)


def test_screen_reader_support(page: Page) -> None:
    """Landmarks, one main heading, names of columns and rows, labels of controls and images, and
    live regions."""
    assert page.evaluate("[...document.querySelectorAll('header, main')].length") == 2
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert page.evaluate(
        "[...document.querySelectorAll('thead th')].every((e) => e.scope === 'col')"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('tbody th')].every((e) => e.scope === 'row')"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('main section')]"
        ".every((e) => document.getElementById(e.getAttribute('aria-labelledby'))?.innerText)"
    )
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select, button, svg[role=img]')]"
        ".filter((e) => !(e.labels?.length || e.getAttribute('aria-label') || e.innerText))"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
    assert page.evaluate("document.getElementById('verdict').role") == "status"
    assert page.evaluate("document.getElementById('announce').ariaLive") == "polite"


def test_hundreds_of_resources_can_be_filtered_and_sorted(
    page: Page, server: ServerProcess
) -> None:
    """All are listed; a filter shows those that match, and sorting changes the order only."""
    total = page.evaluate("document.querySelectorAll('#matrix tbody tr').length")
    assert total > OTHER_KINDS
    assert page.text("#shown") == f"{total} resources"
    page.evaluate("document.getElementById('filter').focus()")
    page.type("KIND29")
    shown = "#matrix tbody tr:not([hidden]) th span"
    assert page.texts(shown) == ["kind29s", *(f"kind29{number}s" for number in range(10))]
    assert page.text("#shown") == f"11 of {total} resources"
    page.type("x")
    assert page.text("#matrix-empty") == "Nothing matches."
    page.evaluate(
        "document.getElementById('filter').value = '';"
        "document.getElementById('filter').dispatchEvent(new Event('input'))"
    )
    page.evaluate(
        "document.getElementById('sort').value = 'group';"
        "document.getElementById('sort').dispatchEvent(new Event('change'))"
    )
    groups = page.texts("#matrix tbody tr th small")
    assert len(groups) == total
    assert groups[0] == "core"
    known = [group for group in groups if group != "core"]
    assert known == sorted(known)
    assert_clean(page, server.url)


def test_a_page_watches_over_a_websocket(page: Page, server: ServerProcess) -> None:
    """A page sends its token as a subprotocol, gets changes live, and closes cleanly; with an
    invalid token, or with a session cookie alone, it gets nothing."""
    encoded = [base64.urlsafe_b64encode(text.encode()).decode() for text in (server.token, "no")]
    good, wrong = (f"base64url.bearer.authorization.k8s.io.{each.rstrip('=')}" for each in encoded)
    page.evaluate(f"{WATCH}({json.dumps([good, 'watch.example'])})")
    page.wait("watch.protocol === 'watch.example'", "the watch is open")
    seen = {"metadata": {"name": "seen"}, "data": {"k": "v"}}
    assert server.request("POST", CONFIG_MAPS, seen)[0] == 201
    page.wait("messages.some((each) => each.object.data?.k === 'v')", "the page sees it")
    page.evaluate("watch.close(3000, 'enough')")
    page.wait("ended", "the watch is closed")
    assert page.evaluate("ended") == [3000, True]
    for protocols in ([wrong, "watch.example"], ["watch.example"]):
        page.evaluate(f"{WATCH}({json.dumps(protocols)})")
        page.wait("ended", "the watch is refused")
        assert page.evaluate("[messages.length, ended]") == [0, [1006, False]]
