"""A real Chromium, driven over a pipe by its own protocol (Chrome DevTools): no driver, no port, no other package."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.needs import skip_outside_ci
from tests.waiting import wait_until

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # as root in a container there is none to be had; what is opened is our own page
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
#: A bound for what never comes: a busy machine takes many times as long as an idle one.
_PATIENCE = 90.0
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36}
_KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
AXE = Path(__file__).resolve().parent.parent / "build" / "axe" / "axe.min.js"
#: Of axe: all of WCAG 2.2 A and AA and more; in the dark what colours can change alone.
_RULES = {
    "light": "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']",
    "dark": "['color-contrast', 'link-in-text-block']",
}


def chromium() -> str:
    """Its path; see ``skip_outside_ci`` where there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    return found or skip_outside_ci("no chromium on the PATH: the page was looked at in no browser")


class Refused(AssertionError):
    """What the browser said instead of a result."""


class Tab:
    """One page. ``told``: what the browser reported of it: errors, violations of its policy, requests."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self._process, self._commands, self._answers = process, commands, answers
        self._buffer, self._last = b"", 0
        self._session: str | None = None
        self.told: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command; what happens meanwhile is kept in ``told``. Raises Refused, TimeoutError."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            answer = self._read(deadline)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise Refused(method, answer["error"])
                return answer["result"]
            self.told.append(answer)
        raise TimeoutError(f"{method} was not answered")

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser is silent")
            chunk = os.read(self._answers, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path, ready: str = "document.documentElement.dataset.ready === 'yes'") -> None:
        self.told.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.until(ready)

    def until(self, condition: str) -> None:
        """Until the page is complete and this is true: a page that is between two states is asked again."""
        self.has(f"document.readyState === 'complete' && Boolean({condition})", True)

    def has(self, expression: str, expected: Any) -> None:
        """Until the expression has this value."""

        def told() -> str:
            return f"{expression} is {self.value(expression)!r}, not {expected!r}; {self.troubles()}"

        wait_until(lambda: self.value(expression) == expected, _PATIENCE, told)

    def value(self, expression: str) -> Any:
        """Of JavaScript, a promise's when it is settled. Raises AssertionError where it throws.

        A page that is being left refuses to answer; the one that follows it is asked again.
        """

        def answer() -> dict[str, Any] | None:
            with suppress(Refused):
                return self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
            return None

        done = wait_until(answer, _PATIENCE, lambda: f"every page refused {expression}")
        assert done is not None and "exceptionDetails" not in done, done
        return done["result"].get("value")

    def settle(self) -> None:
        frame = "requestAnimationFrame"
        self.value(f"new Promise(done => {frame}(() => {frame}(() => done(null))))")

    def look(self, width: int, height: int, theme: str, media: str = "screen") -> None:
        """As on a screen of this width whose owner likes ``light`` or ``dark``."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.settle()

    def press(self, key: str, shift: bool = False) -> None:
        code = _KEYS[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        fields = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": code,
            "modifiers": 8 * shift,
        }
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **fields)
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path, whole: bool = False) -> None:
        """A PNG of what is seen, or of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    def troubles(self) -> list[str]:
        """Errors, violations of the content security policy, and requests for anything but the page's own file."""
        found = []
        for one in self.told:
            parameters = one.get("params", {})
            if one.get("method") == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"].get("exception", {}).get("description")))
            elif one.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
            elif one.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                found.append(str(parameters["args"]))
            elif one.get("method") == "Page.javascriptDialogOpening":
                found.append(f"a dialog: {parameters['message']}")
            elif one.get("method") == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if parameters.get("type") != "Document" and not url.startswith(("data:", "blob:")):
                    found.append(f"a request: {url}")
        return found


def _high(descriptor: int) -> int:
    """The same file by a number that is none of those the browser reads and writes, 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """A browser with one page; ``folder`` takes its profile and what it saves."""
    program = chromium()
    to_read, commands = map(_high, os.pipe())
    answers, to_write = map(_high, os.pipe())
    arguments = [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    redirect = f'exec "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
    process = subprocess.Popen(
        ["bash", "-c", redirect, "bash", *arguments],
        pass_fds=(to_read, to_write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Tab(process, commands, answers)
    finally:
        os.close(commands)  # it ends when nobody can tell it anything any more
        os.close(answers)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            pass
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its zygotes and, of the headless shell, the browser itself
        process.wait()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def violations(tab: Tab, theme: str, within: str = "document") -> list[str]:
    """Of axe's rules: each with the first places, and what to do about it. All that can be opened is open."""
    if not AXE.is_file():
        skip_outside_ci("no axe-core to judge the page by: make build/axe/axe.min.js")
    if tab.value("typeof axe") == "undefined":
        tab.value(AXE.read_text())
    tab.value("document.querySelectorAll('details').forEach(one => (one.open = true))")
    place = "node => `${node.html} ${node.failureSummary}`"
    told = f"one => `${{one.id}}: ${{one.nodes.slice(0, 3).map({place}).join('; ')}}`"
    run = f"axe.run({within}, {{runOnly: {_RULES[theme]}}}).then(done => done.violations.map({told}))"
    return tab.value(run)


def looks_well(tab: Tab, width: int, theme: str) -> None:
    """The page fits this width, is light or dark as asked for, and has no violation."""
    tab.look(width, 900, theme)
    tab.until(f"document.documentElement.scrollWidth <= {width}")
    is_dark = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(one => one < 60)"
    tab.has(is_dark, theme == "dark")
    found = violations(tab, theme)
    assert found == [], found
