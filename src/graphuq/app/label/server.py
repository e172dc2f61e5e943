"""A session in; a web application that serves only holders of its key out.

Access: the page's URL carries a random key, which the page sends back in a header with every request. A request
with a foreign Host or Origin header, without the key, or with a large body is refused before the body is read.
Content: the static files of the page, JSON from the session, and pictures by row number; no file name ever comes
from a request.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphuq.app.label.session import MAX_CLASSES, Session
from graphuq.app.label.store import ABOUT_CLASSES, ABOUT_ROWS, Refused
from graphuq.app.report.palette import SHAPES, variables
from graphuq.app.shell import sentence

MAX_BODY = 16 * 1024  # bytes: an answer is a number and a name
TOO_LARGE = f"That is too much: at most {MAX_BODY:,} bytes are accepted."
MAX_WORD = 100  # characters of the identifiers that a page chooses for itself and its actions
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KEY_HEADER = "x-graphuq-key"
DOWNLOADS = {".csv": "text/csv", ".json": "application/json"}


def _guarded(app: ASGIApp, key: str, bound: str) -> ASGIApp:
    """The application with its headers, and with requests that do not come from its own page refused first."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = _refusal(Request(scope), key, bound)
        response = app if refusal is None else _sentence(*refusal)
        await response(scope, receive, send_with_headers)

    return guarded


def _refusal(request: Request, key: str, bound: str) -> tuple[int, str] | None:
    """Status and message with which a request is refused; None if it is allowed."""
    host = request.headers.get("host", "")
    if not may_be_called(host, bound):
        return 421, "This page is not known under that name."
    own = f"http://{host}"
    site = request.headers.get("sec-fetch-site", "none")
    if request.headers.get("origin", own) != own or site not in ("none", "same-origin"):
        return 403, "This page does not answer other pages."
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MAX_BODY:
        return 413, TOO_LARGE
    open_to_all = request.url.path in STATIC  # static files contain no data of the table
    if not open_to_all and not hmac.compare_digest(request.headers.get(KEY_HEADER, "").encode(), key.encode()):
        return 401, "The key in the address is missing or wrong: open the address that graphuq label printed."
    return None


def may_be_called(host: str, bound: str) -> bool:
    """Whether a Host header names this machine; others are refused against DNS rebinding."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return not is_loopback(bound) and name in {bound.lower(), socket.gethostname().lower()}
    return address.is_loopback or not is_loopback(bound)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int | None, before: int | None = None) -> socket.socket:
    """Open a listening socket at the given port, else at that of the previous session if free, else at any."""
    if port is None and before:
        with suppress(ValueError):  # the port is taken
            return listen(host, before)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port or 0))
        listener.listen(128)
    except OSError as error:
        listener.close()
        at, other = (f"Port {port} at {host}", "--port") if port is not None else (host, "--host")
        raise ValueError(
            f"{at} cannot be listened on ({error.strerror or error}): choose another {other}, or leave it out."
        ) from None
    return listener


def application(
    session: Session, key: str, host: str, finish: Callable[[], dict[str, Any]], labels: Callable[[str], str]
) -> ASGIApp:
    """The web application of a session; `finish` writes the results, `labels` returns them as a file of a given kind."""

    def static(request: Request) -> Response:  # synchronous handlers like this one run in a thread pool
        content, kind = STATIC[request.url.path]()
        return Response(content, media_type=kind)

    def state(request: Request) -> Response:
        if tab := request.query_params.get("tab", "")[:MAX_WORD]:
            session.store.renew(tab)
        return JSONResponse(session.state())

    def picture(request: Request) -> Response:
        try:
            path, kind = session.look.picture(min(request.path_params["row"], len(session.look.names) - 1))
        except FileNotFoundError as error:
            return _sentence(404, str(error))
        return FileResponse(path, media_type=kind)

    def download(request: Request) -> Response:
        kind = PurePosixPath(request.url.path).suffix
        return Response(labels(kind), media_type=DOWNLOADS[kind])

    async def do(request: Request) -> Response:
        body = b""
        async for part in request.stream():  # the declared length may be missing or wrong
            body += part
            if len(body) > MAX_BODY:
                return _sentence(413, TOO_LARGE)
        action = _json(body)
        key, tab, kind = (_word(action, name) for name in ("key", "tab", "kind"))
        row, name = None, ""
        if kind not in (*ABOUT_ROWS, *ABOUT_CLASSES, "undo"):
            raise Refused(f"{kind!r} is not something that can be done.")
        if kind in ABOUT_ROWS and type(row := action.get("row")) is not int:
            raise Refused("row must be a number.")
        if kind in ("answer", *ABOUT_CLASSES):
            name = _word(action, "class", MAX_BODY)
        again = kind == "answer" and action.get("again") is True
        await run_in_threadpool(session.do, key, tab, kind, row, name, again=again)
        return JSONResponse(await run_in_threadpool(session.state))

    def refused(request: Request, error: Exception) -> Response:
        return _sentence(409, sentence(error))

    app = Starlette(
        routes=[
            *(Route(path, static) for path in STATIC),
            Route("/api/state", state),
            Route("/api/layout", lambda request: JSONResponse(session.layout())),
            Route(
                "/api/question", lambda request: JSONResponse(session.question(_word(request.query_params, "tab")))
            ),
            Route(
                "/api/row/{row:int}", lambda request: JSONResponse(session.describe(request.path_params["row"]))
            ),
            Route("/api/picture/{row:int}", picture),
            Route("/api/do", do, methods=["POST"]),
            *(Route(f"/api/labels{kind}", download) for kind in DOWNLOADS),
            Route("/api/write", lambda request: JSONResponse(finish()), methods=["POST"]),
        ],
        exception_handlers={ValueError: refused, OSError: refused},
    )
    return _guarded(app, key, host)


def _sentence(status: int, message: str) -> Response:
    return JSONResponse({"sentence": message}, status_code=status)


def _json(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise Refused("That is not what the page sends.")
    return parsed


def _word(given: Any, name: str, most: int = MAX_WORD) -> str:
    word = given.get(name)
    if not isinstance(word, str) or not 0 < len(word) <= most:
        raise Refused(f"{name} must be a text of 1 to {most} letters.")
    return word


def _file(name: str, of: str = "label") -> str:
    return files(f"graphuq.app.{of}").joinpath(name).read_text("utf-8")


STATIC: dict[str, Callable[[], tuple[str, str]]] = {
    "/": lambda: (_file("page.html"), "text/html"),
    "/label.js": lambda: (_file("label.js"), "text/javascript"),
    "/draw.js": lambda: (_file("draw.js", of="report"), "text/javascript"),
    "/shapes.json": lambda: (json.dumps(SHAPES), "application/json"),
    "/label.css": lambda: (
        variables(MAX_CLASSES) + _file("page.css", of="report") + _file("label.css"),
        "text/css",
    ),
}
