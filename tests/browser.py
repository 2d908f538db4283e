"""Headless Chromium, told what to do over a pipe by its own protocol: one start for many pages."""

import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
PATIENCE = 600  # seconds, after which a browser that says nothing has hung


class Browser:
    """A page of Chromium: `open` a file, `evaluate` JavaScript in it, `complaints` of its console.

    Source: the DevTools protocol, https://chromedevtools.github.io/devtools-protocol, over pipes.
    """

    def __init__(self, chromium: str):
        self.home = tempfile.TemporaryDirectory(
            prefix="minicaffe-browser-", ignore_cleanup_errors=True
        )
        (read_ours, write_theirs), (read_theirs, write_ours) = os.pipe(), os.pipe()
        pipes = f'exec "$@" 3<&{read_theirs} 4>&{write_theirs}'
        flags = (*FLAGS, f"--user-data-dir={self.home.name}", "--remote-debugging-pipe")
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", pipes, "bash", chromium, *flags],
            pass_fds=(read_theirs, write_theirs),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self.incoming, self.outgoing, self.buffer = read_ours, write_ours, b""
        self.numbers, self.complaints, self.loads = itertools.count(1), [], 0
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        os.close(self.outgoing)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.incoming)
        self.home.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser for something, and wait for the answer."""
        number = next(self.numbers)
        asked = {"id": number, "method": method, "params": params}
        asked |= {"sessionId": self.session} if self.session else {}
        os.write(self.outgoing, json.dumps(asked).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]

    def message(self) -> dict[str, Any]:
        """The next that the browser says; complaints and loads are noted."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.incoming], [], [], max(0, until - time.monotonic()))
            more = os.read(self.incoming, 1 << 20) if ready else b""
            assert more, "the browser has ended, or says nothing"
            self.buffer += more
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        told = message.get("params", {})
        if message.get("method") == "Page.loadEventFired":
            self.loads += 1
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(told["exceptionDetails"])
        if message.get("method") == "Log.entryAdded":
            self.complaints.append(told["entry"])
        if message.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(told["args"])
        return message

    def open(self, page: Path, width: int = 1280, height: int = 900) -> None:
        """Load a page anew in a window of so many pixels; there are no complaints of it yet."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)
        self.complaints.clear()
        before = self.loads
        self.call("Page.navigate", url=page.as_uri())
        self.wait(before)

    def wait(self, before: int) -> None:
        """Until another page has been loaded."""
        while self.loads == before:
            self.message()

    def evaluate(self, script: str) -> Any:
        """The value of an expression, a promise's when it is there."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")


def start() -> Browser:
    """Chromium, or a visible skip where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not here")
    return Browser(chromium)
