"""A headless Chromium driven over its debugging pipe: no driver package, no port, no network. Used
by the browser tests.

Tests skip, saying so, where no Chromium is installed; set CHROMIUM to name one that is not on PATH.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """Path of a Chromium, or None."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


def require_chromium() -> str:
    """Path of a Chromium; skips the test with the reason where there is none."""
    path = find_chromium()
    if path is None:
        pytest.skip(
            "no Chromium on PATH (install the package 'chromium', or set CHROMIUM): the browser tests were not run"
        )
    return path


class Browser:
    """One browser with one page. Use as a context manager."""

    def __init__(self, executable: str, timeout: float = 60) -> None:
        self.timeout = timeout
        self.profile = tempfile.TemporaryDirectory(
            prefix="ncu-toolkit-chromium-", ignore_cleanup_errors=True
        )
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Chromium reads commands on descriptor 3 and answers on 4. The shell moves the pipes there,
        # by way of copies so that neither is overwritten.
        shell = f'exec 8<&{to_browser} 9>&{from_browser}; exec 3<&8 4>&9; exec "$@"'
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                shell,
                "chromium",
                executable,
                *FLAGS,
                f"--user-data-dir={self.profile.name}",
                "about:blank",
            ],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._next_id = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._write)
        os.close(self._read)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.profile.cleanup()

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer.get("result", {})
                return result
            self.events.append(answer)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium did not answer in time")
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium ended")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(
        self,
        url: str | Path,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        script: bool = True,
    ) -> None:
        """Load a page and wait until it has loaded. `scheme` is what prefers-color-scheme
        answers."""
        self.events.clear()
        self.resize(width, height)
        self._call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self._call("Emulation.setScriptExecutionDisabled", value=not script)
        address = url.resolve().as_uri() if isinstance(url, Path) else url
        self._call("Page.navigate", url=address)
        if address.partition("#")[0] != address and not any(
            e.get("method") == "Page.loadEventFired" for e in self.events
        ):
            return
        deadline = time.monotonic() + self.timeout
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(deadline))

    def resize(self, width: int, height: int) -> None:
        """Give the page in view another size."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression (awaited when it is a promise)."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(
                answer["exceptionDetails"].get("exception", {}).get("description", "exception")
            )
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until a JavaScript expression is true, on this page or the one it leads to."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                if self.evaluate(f"Boolean({expression})"):
                    return
            except RuntimeError as problem:
                # the page was left while it was asked
                if not re.search(r"navigated|context", str(problem)):
                    raise
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.02)

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """One key press in the focused element."""
        extra: dict[str, Any] = {"windowsVirtualKeyCode": code} if code else {}
        self._call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key=key,
            code=key,
            **({"text": text} if text else {}),
            **extra,
        )
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, **extra)

    def worked(self) -> float:
        """Seconds that the page's main thread has computed, however busy the machine is."""
        self._call("Performance.enable", timeDomain="threadTicks")
        metrics = self._call("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        options: dict[str, Any] = {}
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            options = {
                "captureBeyondViewport": True,
                "clip": {
                    "x": 0,
                    "y": 0,
                    "width": size["width"],
                    "height": size["height"],
                    "scale": 1,
                },
            }
        path.write_bytes(
            base64.b64decode(self._call("Page.captureScreenshot", format="png", **options)["data"])
        )

    def requests(self) -> list[str]:
        """Addresses that left the page since `open`: asked for, and not stopped by the page's own
        policy."""
        self.evaluate("1")
        stopped = {
            event["params"]["requestId"]
            for event in self.events
            if event.get("method") == "Network.loadingFailed"
            and event["params"].get("blockedReason") == "csp"
        }
        asked = [
            event["params"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [params["request"]["url"] for params in asked if params["requestId"] not in stopped]

    def complaints(self) -> list[str]:
        """Errors that the page logged since `open`: exceptions, refused resources, policy
        violations."""
        self.evaluate("1")
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(
                    params["exceptionDetails"].get("exception", {}).get("description", "exception")
                )
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in (
                "error",
                "warning",
            ):
                found.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in (
                "error",
                "assert",
            ):
                found.append(str([argument.get("value") for argument in params["args"]]))
        return found
