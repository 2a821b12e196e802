from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from PIL import Image

from api.services.budgets import Change, set_budget
from hpctools.budget.allowance import Enforcement, Notify, Spec
from hpctools.budget.tree import BudgetSite

_LIMIT = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


@dataclass
class Chromium:
    """A real Chromium, told what to do through its DevTools pipe; scripts are switched off in its pages."""

    pid: int
    commands: int
    answers: int
    session: str = ""
    target: str = ""
    _number: int = 0
    _rest: bytes = b""
    _events: list[dict[str, Any]] = field(default_factory=list)

    def open_tab(self) -> None:
        self.session = ""
        self.target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        # Input goes to the page that is in front and has the focus.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Page.bringToFront")

    def close_tab(self) -> None:
        self.session = ""
        self.call("Target.closeTarget", targetId=self.target)

    def window(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        self._events.clear()
        self.call("Page.navigate", url=url)
        self._await_page()

    def type_and_enter(self, field: str, text: str) -> None:
        """Into the field that a CSS selector finds."""
        self.evaluate(f"document.querySelector({field!r}).focus()")
        self._events.clear()
        self.call("Input.insertText", text=text)
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        self.call("Input.dispatchKeyEvent", type="keyDown", **enter)
        self.call("Input.dispatchKeyEvent", type="keyUp", **enter)
        self._await_page()

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=9)

    def choose(self, select: str, value: str) -> None:
        """An option, as a person does; for a choice that is shown at once."""
        self._events.clear()
        found = f"document.querySelector({select!r})"
        self.evaluate(f"{found}.value = {value!r}; {found}.dispatchEvent(new Event('change')); 0")
        self._await_page()

    def follow(self, script: str) -> None:
        """Wait for the page that a script leads to."""
        self._events.clear()
        self.evaluate(f"{script}; 0")
        self._await_page()

    def submit(self, form: str) -> None:
        """Send the form that a CSS selector finds."""
        self._events.clear()
        self.evaluate(f"document.querySelector({form!r}).requestSubmit()")
        self._await_page()

    def axe(self) -> list[str]:
        """What axe finds on the page that is of any weight: rule, impact, and where."""
        code = (files("axe_playwright_python") / "axe.min.js").read_text()
        self.call("Emulation.setScriptExecutionDisabled", value=False)
        self.evaluate(f"{code};0")
        found = self.evaluate("axe.run().then(found => found.violations)", wait=True)
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        return [
            f"{each['id']} ({each['impact']}): {node['target']}" for each in found for node in each["nodes"]
        ]

    def evaluate(self, expression: str, *, wait: bool = False) -> Any:
        """What an expression of JavaScript gives, or with `wait` the promise that it gives."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=wait)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, until: str = "body") -> bytes:
        """The page from its top to the end of the element that a CSS selector finds."""
        box = self.evaluate(f"document.querySelector({until!r}).getBoundingClientRect().toJSON()")
        size = {"width": self.evaluate("innerWidth"), "height": box["bottom"] + 16}
        clip = {"x": 0, "y": 0, "scale": 1} | size
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _await_page(self) -> None:
        """Until a page that we went to is loaded; a new tab's own empty page does not count."""
        arrived = False
        while True:
            event = self._events.pop(0) if self._events else self._read()
            if event.get("method") == "Page.frameNavigated":
                arrived = event["params"]["frame"]["url"] != "about:blank"
            elif arrived and event.get("method") == "Page.loadEventFired":
                return

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + _LIMIT
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            chunk = os.read(self.answers, 1 << 20)
            assert chunk, "Chromium ended"
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("Chromium is missing: apt-get install --no-install-recommends chromium fonts-dejavu-core")
    folder = tmp_path_factory.mktemp("chromium")
    (child_in, our_out), (our_in, child_out) = os.pipe(), os.pipe()
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
    # The pipe is on descriptors 3 and 4 by definition; first out of their way.
    moved_in, moved_out = (os.dup2(fd, at, inheritable=True) for fd, at in ((child_in, 40), (child_out, 41)))
    duplicates = ((moved_in, 3), (moved_out, 4), (log, 1), (log, 2))
    pid = os.posix_spawn(
        program,
        [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}"],
        os.environ | {"HOME": str(folder)},
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, at) for fd, at in duplicates],
        setpgroup=0,
    )
    for fd in (child_in, child_out, moved_in, moved_out, log):
        os.close(fd)
    try:
        yield Chromium(pid, our_out, our_in)
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(our_out)
        os.close(our_in)
        with suppress(OSError):  # in $TMPDIR, as a socket's path must be short
            shutil.rmtree((folder / "profile/SingletonSocket").readlink().parent)


@pytest.fixture
def tab(chromium: Chromium) -> Iterator[Chromium]:
    """A fresh page without cookies."""
    chromium.open_tab()
    chromium.call("Network.clearBrowserCookies")
    yield chromium
    chromium.close_tab()


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serve an application on a free port; returns its address."""
    running: list[tuple[uvicorn.Server, Thread]] = []

    def start(app: Any) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(20)


@dataclass
class Overspent:
    """The service with a department that has spent more than its budget, whose policy holds its jobs."""

    service: Any
    site: BudgetSite

    def __getattr__(self, name: str) -> Any:
        return getattr(self.service, name)


@pytest.fixture
def overspent(november_service: Any, site: BudgetSite, now: int) -> Overspent:
    """nlp spent 20,305.57 of 5,000."""
    spec = Spec(
        Decimal("5000.00"),
        "USD",
        alert_at=(50,),
        alert_on_forecast=(1000,),
        enforcement=Enforcement("hold", 100),
        notify=Notify(("head@uni.example",), "", "https://chat.example/hook"),
    )
    change = Change("dean", now, "less money this year")
    set_budget(november_service.engine, site, site.by_name["nlp"], spec, date(2026, 11, 1), change)
    return Overspent(november_service, site)


@pytest.fixture(scope="session")
def picture() -> Callable[[str, bytes], None]:
    """Keeps a screenshot under a name for the documentation, if that was asked for (`./dev pictures`)."""
    folder = os.environ.get("HPCTOOLS_SCREENSHOTS")

    def keep(name: str, png: bytes) -> None:
        if folder:
            # A third of the size, and nobody sees the difference.
            Image.open(BytesIO(png)).quantize(128).save(Path(folder) / f"{name}.png", optimize=True)

    return keep
