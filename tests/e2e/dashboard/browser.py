"""A real browser, controlled over the DevTools protocol: JSON separated by NULs, through two pipes.

Synchronous, like the servers in these tests: a call waits for its response, and events received
meanwhile are kept. Each page has a separate profile, so that cookies are not shared. Not here:
anything about the dashboard.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

CHROMIUM: Final = "chromium"
CALL_SECONDS_MAX: Final = 30.0
WAIT_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.05
READ_BYTES: Final = 1 << 16
# The shell moves the pipes to the file descriptors that the browser uses.
FIRST_FREE_FD: Final = 20
ARGUMENTS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    # Servers create their own certificate authority, which the browser does not trust.
    "--ignore-certificate-errors",
)


class BrowserError(Exception):
    """An error of the browser, or of a script in the page."""


class Browser:
    """One process of the browser."""

    def __init__(self, profile: Path) -> None:
        inward, self._write_fd = _pipe()
        self._read_fd, outward = _pipe()
        command = f'exec "$0" "$@" 3</proc/self/fd/{inward} 4>/proc/self/fd/{outward}'
        with (profile.parent / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", command, CHROMIUM, *ARGUMENTS, f"--user-data-dir={profile}"],
                pass_fds=(inward, outward),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(inward)
        os.close(outward)
        self._rest = b""
        self._last_id = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}
        self._contexts: list[str] = []

    def close(self) -> None:
        """End the process."""
        try:
            self.call("Browser.close")
            self._process.wait(5)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write_fd)
        os.close(self._read_fd)

    def page(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """A new page with separate cookies."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"])
        self._pages[attached["sessionId"]] = page
        self._contexts.append(context)
        page.prepare(width=width, height=height, dark=dark)
        return page

    def close_pages(self) -> None:
        """Close all pages: open pages keep running."""
        self._pages.clear()
        while self._contexts:
            self.call("Target.disposeBrowserContext", browserContextId=self._contexts.pop())

    def call(self, method: str, *, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command to the browser, and wait for its response."""
        self._last_id += 1
        number = self._last_id
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write_fd, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + CALL_SECONDS_MAX
        while number not in self._answers:
            self.listen(deadline - time.monotonic())
            if time.monotonic() > deadline:
                raise BrowserError(f"no answer to {method}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def listen(self, seconds: float) -> None:
        """Read events of the browser, waiting at most this long for them."""
        ready, _, _ = select.select([self._read_fd], [], [], max(0.0, seconds))
        if not ready:
            return
        data = os.read(self._read_fd, READ_BYTES)
        if not data:
            raise BrowserError("the browser has ended")
        *messages, self._rest = (self._rest + data).split(b"\0")
        for each in messages:
            message = json.loads(each)
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") in self._pages:
                self._pages[message["sessionId"]].note(message["method"], message["params"])


class Page:
    """One page. Created by `Browser.page`."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.problems: list[str] = []
        """Errors in the console: of scripts, and of the content security policy."""
        self.failed_loads: list[str] = []
        """Requests that failed, in the browser's wording."""
        self.urls: list[str] = []
        """All requests of the page."""

    def prepare(self, *, width: int, height: int, dark: bool) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.prefer(dark=dark)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, session=self._session, **parameters)

    def note(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.urls.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                entry = params["entry"]
                where = self.failed_loads if entry["source"] == "network" else self.problems
                where.append(f"{entry['text']} {entry.get('url', '')}")

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, *, dark: bool) -> None:
        """Set the preferred color scheme."""
        value = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": value}],
        )

    def goto(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'", url)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:1000])
        return answer["result"].get("value")

    def wait(self, script: str, what: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                found = self.evaluate(f"Boolean({script})")
            except BrowserError as error:  # scripts fail while the page is navigating
                found = False
                trouble = str(error)
            else:
                trouble = ""
            if found:
                return
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body.innerText.slice(0, 1500)")
                raise AssertionError(f"timed out waiting until {what} {trouble}\n{shown}")
            self._browser.listen(POLL_SECONDS)

    def text(self, selector: str) -> str:
        """The visible text of the first match; empty without one."""
        found = self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found).strip()

    def texts(self, selector: str) -> list[str]:
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return list(self.evaluate(f"{found}.map((e) => (e.innerText ?? e.textContent).trim())"))

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, code: int = 0) -> None:
        """Press a key."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        answer = self.call(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=whole,
            **({"clip": {**size, "scale": 1}} if whole else {}),
        )
        path.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def start_browser(directory: Path) -> Iterator[Browser]:
    """A browser with an empty profile; it ends with the block."""
    assert shutil.which(CHROMIUM) is not None, f"the tests of the dashboard require {CHROMIUM}"
    browser = Browser(directory / "profile")
    try:
        yield browser
    finally:
        browser.close()


def _pipe() -> tuple[int, int]:
    """A pipe with file descriptors that do not collide with those of the browser."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
