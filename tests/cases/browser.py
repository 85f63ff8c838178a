"""A headless Chromium over the pipe of its DevTools protocol: pages opened, looked at, printed. No package needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
PATIENCE_S = 30

FAINT = """
(() => { const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (colour) => { const [r, g, b] = colour.match(/[0-9.]+/g).map((v) => linear(Number(v) / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (part) => { for (; part; part = part.parentElement) {
      const own = getComputedStyle(part).backgroundColor;
      if (own !== 'rgba(0, 0, 0, 0)') return own;
    } return 'rgb(255, 255, 255)'; };
  const texts = 'p, dt, dd, small, a, th, td, li, summary, button, figcaption, .small-chart span';
  const faint = [...document.querySelectorAll(texts)].filter((part) => {
    if (!part.checkVisibility() || !part.innerText.trim()) return false;
    const [a, b] = [light(getComputedStyle(part).color), light(ground(part))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < 4.5; });
  return [...new Set(faint.map((part) => part.localName + ' ' + part.innerText.slice(0, 30)))]; })()"""
"""Texts of a page that stand out from their ground by less than 4.5 to 1 (WCAG 2, AA)."""


class Browser:
    """One browser process with one page."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_end, self._out = os.pipe()
        self._in, write_end = os.pipe()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]
        # The protocol is spoken on descriptors 3 and 4; where they stand in this process does not matter.
        command = f'exec "$0" "$@" 3<&{read_end} 4>&{write_end}'
        self._process = subprocess.Popen(
            [
                "bash", "-c", command, CHROMIUM, *flags, "--remote-debugging-pipe",
                f"--user-data-dir={self._profile.name}", "about:blank",
            ],
            pass_fds=(read_end, write_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_end)
        os.close(write_end)
        self._last, self._buffer, self.errors, self.requests = 0, b"", [], []
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session = None

    def call(self, method, **params):
        """One command and its answer; what happens meanwhile is noted."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._last:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _receive(self):
        while b"\0" not in self._buffer:
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has gone")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(
                str([argument.get("description") or argument.get("value") for argument in params["args"]])
            )
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def size(self, width, height=900, *, dark=False):
        """Show the page in so many CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path):
        """Load a file and wait until its plots are drawn."""
        self.go(f"file://{path}")

    def go(self, address):
        """Load an address and wait until its scripts have run."""
        self.errors.clear()
        self.requests.clear()
        self.call("Page.navigate", url=address)
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def wait(self, condition):
        """Until a condition in the page holds; AssertionError if it never does."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.run(condition):
                return
            time.sleep(0.05)
        raise AssertionError(f"never: {condition}; {self.errors}")

    def run(self, expression):
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def style(self, rules):
        """Add rules to the style of the page."""
        element = f"Object.assign(document.createElement('style'), {{textContent: {json.dumps(rules)}}})"
        self.run(f"document.head.append({element})")

    def point(self, x, y):
        """Move the pointer there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def key(self, name):
        """Press a key and let it go; a letter is typed."""
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37}.get(name)
        told = (
            {"key": name, "code": name, "windowsVirtualKeyCode": code}
            if code
            else {"key": name, "text": name}
        )
        if name == "Enter":
            told["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **told)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def screenshot(self, path, clip=None, scale=1):
        """The whole page, or a part of it, as PNG, smaller where `scale` is less than 1."""
        area = {"clip": {**clip, "scale": scale}} if clip else {}
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True, **area)
        path.write_bytes(base64.b64decode(found["data"]))

    def pdf(self):
        """The page as it is printed."""
        found = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(found["data"])

    def close(self):
        """End the browser."""
        self._session = None
        with contextlib.suppress(RuntimeError, OSError):
            self.call("Browser.close")
        self._process.wait(PATIENCE_S)
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()
