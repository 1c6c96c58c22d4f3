"""Headless Chromium over the DevTools protocol, with nothing but the standard library.

Only what the report's tests need: open a file, run a script, collect console messages and requests. The
WebSocket part follows RFC 6455 (client frames are masked, text only).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    # Whatever the browser itself wants from outside fails at once; a report asks for nothing, a page that the lab serves for the lab alone.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
START_S = 30.0
ANSWER_S = 30.0
NAVIGATED = "Inspected target navigated or closed"


class Navigated(RuntimeError):
    """The page was left while it was asked."""


def executable() -> str | None:
    """Chromium or Chrome on this machine."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        found = shutil.which(name)
        if found:
            return found
    return None


class Browser:
    """One headless browser with a profile of its own; a context manager."""

    def __init__(self) -> None:
        """Starts the browser; raises RuntimeError when it does not answer."""
        command = executable()
        if command is None:
            raise RuntimeError("no Chromium on this machine")
        self._profile = tempfile.TemporaryDirectory(prefix="report-browser-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [command, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._port = self._await_port()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        """The browser itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the browser."""
        self.close()

    def close(self) -> None:
        """Ends the process that was started here, and removes its profile."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._profile.cleanup()

    def page(self) -> Page:
        """A new tab."""
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            target = json.load(answer)
        return Page(self._port, str(target["webSocketDebuggerUrl"]))

    def _await_port(self) -> int:
        file = Path(self._profile.name) / "DevToolsActivePort"
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if file.exists():
                lines = file.read_text().splitlines()
                if lines and lines[0].isdigit():
                    return int(lines[0])
            if self._process.poll() is not None:
                raise RuntimeError(f"Chromium ended with status {self._process.returncode}")
            time.sleep(0.05)
        raise RuntimeError("Chromium did not open its DevTools port")


class Page:
    """One tab: its console messages, the requests it made, and a way to run scripts in it."""

    def __init__(self, port: int, address: str) -> None:
        """Connects to the tab's DevTools socket."""
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        self._next = 0
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._buffer = b""
        path = address.split(str(port), 1)[1]
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._buffer:
            self._receive()
        self._buffer = self._buffer.split(b"\r\n\r\n", 1)[1]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One DevTools command; events that arrive meanwhile are kept."""
        self._next += 1
        number = self._next
        self._send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = self._message()
            if message.get("id") == number:
                if "error" in message:
                    kind = Navigated if NAVIGATED in str(message["error"]) else RuntimeError
                    raise kind(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def open(
        self, place: Path | str, width: int, height: int, *, dark: bool = False, scripts: bool = True
    ) -> None:
        """Loads a file or an address at a window size and theme, and waits until it has loaded."""
        self.messages, self.requests, self._events = [], [], []
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.resize(width, height)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.call("Page.navigate", url=place if isinstance(place, str) else place.as_uri())
        self._await_load()

    def follow(self, script: str) -> None:
        """Runs what leads to another page, and waits until that has loaded."""
        self._events = []
        self.evaluate(script)
        self._await_load()

    def _await_load(self) -> None:
        while "Page.loadEventFired" not in self._events:
            self._note(self._message())

    def resize(self, width: int, height: int) -> None:
        """Changes the window's size; below 500 px it is a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def evaluate(self, script: str) -> Any:
        """The value of an expression (awaited when it is a promise)."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def picture(self, kind: str, width: int, height: int) -> bytes:
        """The head of the page, as `png` or `webp`."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        quality = {"quality": 80} if kind == "webp" else {}
        answer = self.call("Page.captureScreenshot", format=kind, clip=clip, **quality)
        return base64.b64decode(answer["data"])

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = str(message.get("method", "")), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(parameters["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(json.dumps(parameters.get("args", []))[:2000])
        elif method == "Log.entryAdded":
            self.messages.append(json.dumps(parameters["entry"])[:2000])
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(parameters["request"]["url"]))

    def _send(self, text: str) -> None:
        payload = text.encode()
        mask = os.urandom(4)
        length = len(payload)
        if length < 126:
            head = struct.pack(">BB", 0x81, 0x80 | length)
        elif length < 1 << 16:
            head = struct.pack(">BBH", 0x81, 0x80 | 126, length)
        else:
            head = struct.pack(">BBQ", 0x81, 0x80 | 127, length)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        self._socket.sendall(head + mask + masked)

    def _message(self) -> dict[str, Any]:
        parts = b""
        while True:
            first, second = self._take(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", self._take(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self._take(8))
            parts += self._take(length)
            if first & 0x0F > 2:
                # A control frame (ping, close) carries nothing for us.
                parts = b""
            elif first & 0x80:
                message: dict[str, Any] = json.loads(parts)
                return message

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._receive()
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _receive(self) -> None:
        received = self._socket.recv(1 << 20)
        if not received:
            raise RuntimeError("the browser closed the connection")
        self._buffer += received
