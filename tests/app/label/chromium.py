"""Drive headless Chromium by its debugging protocol: an address in; keys, questions to the page and pictures of it out."""

import base64
import json
import re
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from websockets.sync.client import connect

from tests.app.report.browser import CHROMIUM

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip


class Page:
    """One tab."""

    def __init__(self, socket, session):
        self._socket, self._session, self._number = socket, session, 0
        self.said = []  # errors, and what the console said

    def call(self, method, **arguments):
        """One command of the protocol; what happens meanwhile is noted."""
        self._number += 1
        self._socket.send(
            json.dumps({"id": self._number, "method": method, "params": arguments, "sessionId": self._session})
        )
        while True:
            got = json.loads(self._socket.recv(timeout=60))
            if got.get("sessionId") != self._session:
                continue
            if got.get("id") == self._number:
                assert "error" not in got, got
                return got["result"]
            if got.get("method") == "Runtime.exceptionThrown":
                self.said.append(json.dumps(got["params"]["exceptionDetails"]))
            elif got.get("method") == "Log.entryAdded":
                self.said.append(got["params"]["entry"]["text"])

    def ask(self, script):
        """What an expression is in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script, seconds=60.0):
        """Wait until an expression is true."""
        limit = time.monotonic() + seconds
        while not (found := self.ask(script)):
            assert time.monotonic() < limit, (script, self.ask("document.body.innerText")[:3000], self.said)
            time.sleep(0.02)
        return found

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.until("document.documentElement?.dataset.ready === 'yes'")

    def press(self, key):
        """A key, as from a keyboard."""
        text = {"Enter": "\r", "Tab": "", "Escape": ""}.get(key, key)
        codes = {"Enter": 13, "Tab": 9, "Escape": 27}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        kind = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def resize(self, width, height, *, dark=False):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        value = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self, path, *, whole=True):
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser():
    """A function that opens tabs, each in a browser of its own as far as cookies and storage go."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        flags = [*FLAGS, f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(
            [str(CHROMIUM), *flags], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stderr is not None
            address = next(found[0] for line in process.stderr if (found := re.search(r"ws://\S+", line)))
            sockets = ExitStack()

            def tab():
                socket = sockets.enter_context(connect(address, max_size=None))

                def ask(number, method, **arguments):
                    socket.send(json.dumps({"id": number, "method": method, "params": arguments}))
                    while (got := json.loads(socket.recv(timeout=60))).get("id") != number:
                        pass
                    return got["result"]

                context = ask(1, "Target.createBrowserContext")["browserContextId"]
                target = ask(2, "Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
                session = ask(3, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
                page = Page(socket, session)
                page._number = 3
                for domain in ("Runtime", "Log", "Page"):
                    page.call(f"{domain}.enable")
                return page

            with sockets:
                yield tab
        finally:
            process.terminate()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
