"""Open a page in headless Chromium: a page and a probe in; what the probe found and what the console said out."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from tempfile import TemporaryDirectory

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((found for found in map(shutil.which, NAMES) if found), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--enable-logging=stderr",
    "--virtual-time-budget=5000", "--dump-dom",
)  # fmt: skip
# Errors are caught from the first script on; the probe runs when the page has drawn itself.
BEFORE = "<script>window.failures = []; addEventListener('error', (e) => failures.push(e.message));</script>"
AFTER = """<script>
const found = document.createElement("pre");
found.id = "found";
try { found.textContent = JSON.stringify((() => { %s })()); }
catch (error) { failures.push(String(error)); found.textContent = "null"; }
found.dataset.failures = JSON.stringify(failures);
top.document.body.append(found);
</script>"""
# A window is never narrower than this, but a frame in it can be as narrow as a phone.
NARROWEST = 500
FRAME = "<!doctype html><iframe style='border: 0; width: {width}px; height: 1900px' srcdoc='{page}'></iframe>"


def probe(page: str, script: str, *, width: int = 1200) -> tuple[object, list[str]]:
    """What `script` returns in the page, and everything that failed or was said on the console.

    The policy of the page, which lets no other script run, is lifted for the probe alone.
    """
    assert CHROMIUM is not None
    opened = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", page, count=1)
    opened = opened.replace("<style>", BEFORE + "<style>", 1).replace("</body>", AFTER % script + "</body>", 1)
    if width < NARROWEST:
        opened = FRAME.format(width=width, page=escape(opened))
    dom, said = _open(opened, width)
    match = re.search(r'<pre id="found" data-failures="(.*?)">(.*?)</pre>', dom, re.DOTALL)
    assert match, dom[-2000:]
    return json.loads(unescape(match[2])), json.loads(unescape(match[1])) + said


def console(page: str) -> list[str]:
    """What the page as it is says on the console."""
    return _open(page, 1200)[1]


def _open(page: str, width: int) -> tuple[str, list[str]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page, encoding="utf-8")
        flags = [*FLAGS, f"--user-data-dir={folder}/profile", f"--window-size={width},2000"]
        command = [str(CHROMIUM), *flags, path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
