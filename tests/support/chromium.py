"""A headless Chromium that is told what to do over two pipes: DevTools' protocol, as JSON between zero bytes, without a socket."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PROGRAM = next((found for name in NAMES if (found := shutil.which(name))), None)
TO, FROM = 3, 4  # file descriptors that --remote-debugging-pipe reads and writes


class Tab:
    """One page of a browser."""

    def __init__(self, to: int, answers: int) -> None:
        self.to, self.answers, self.session, self.number, self.left = to, answers, "", 0, b""

    def ask(self, method: str, **given: Any) -> dict:
        """The answer to one command. RuntimeError where it is an error."""
        self.number += 1
        asked = {"id": self.number, "method": method, "params": given} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(asked).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self.number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]

    def _next(self) -> dict:
        while b"\0" not in self.left:
            got = os.read(self.answers, 1 << 20)
            if not got:
                raise RuntimeError("chromium ended")
            self.left += got
        first, _, self.left = self.left.partition(b"\0")
        return json.loads(first)

    def value(self, script: str) -> Any:
        """What the expression `script` is in the page, as JSON."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def open(self, page: Path) -> None:
        self.ask("Page.navigate", url=page.as_uri())
        wait = "new Promise(go => document.readyState === 'complete' ? go() : addEventListener('load', () => go()))"
        while self.value("location.href") != page.as_uri():
            pass
        self.value(wait)

    def show(self, width: int, scheme: str) -> None:
        """The page in a window so many CSS pixels wide, under a colour scheme: "light" or "dark"."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key: str) -> None:
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)

    def picture(self, path: Path) -> None:
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def tab(profile: Path) -> Iterator[Tab]:
    """A page of a browser of its own, which keeps its files in `profile`."""
    assert PROGRAM is not None
    (reads, to), (answers, writes) = os.pipe(), os.pipe()

    def connect() -> None:
        kept = os.dup(reads), os.dup(writes)
        os.dup2(kept[0], TO)
        os.dup2(kept[1], FROM)

    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        "--no-first-run",
    ]
    browser = subprocess.Popen(
        [PROGRAM, *options, "--hide-scrollbars", "about:blank"],
        close_fds=False,
        preexec_fn=connect,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    try:
        made = Tab(to, answers)
        target = made.ask("Target.createTarget", url="about:blank")["targetId"]
        made.session = made.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        made.ask("Page.enable")
        yield made
    finally:
        browser.kill()
        browser.wait()
        os.close(to)
        os.close(answers)
