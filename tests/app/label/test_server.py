import asyncio
import json
from functools import partial

import numpy as np
import pytest

from graphuq.app.label import exchange
from graphuq.app.label.server import HEADERS, MAX_BODY, application, listen, may_be_called
from tests.app.label.conftest import N

KEY = "a-key"
GIVEN = {0: "ant", 1: "bee", 2: "cat"}


def request(app, method, path, *, body=b"", key=KEY, host="127.0.0.1:8000", parts=None, **headers):
    """The status, the headers and the body of an answer; the number of parts of the request that were read."""
    path, _, query = path.partition("?")
    raw = {"host": host, **headers} | ({} if key is None else {"x-graphuq-key": key})
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8000), "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in raw.items()],
    }  # fmt: skip
    waiting = iter([body] if parts is None else parts)
    sent, read = [], 0

    async def receive():
        nonlocal read
        part = next(waiting, None)
        if part is None:
            await asyncio.Event().wait()  # nothing more comes
        read += 1
        return {"type": "http.request", "body": part, "more_body": parts is not None}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    content = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}, content, read


@pytest.fixture
def session(make):
    return make(GIVEN)


@pytest.fixture
def app(session):
    labels = partial(exchange.text_of, session, label="kind")
    return application(session, KEY, "127.0.0.1", lambda: {"sentence": "written"}, labels)


def do(app, **what):
    return request(app, "POST", "/api/do", body=json.dumps({"tab": "me", "key": "1", **what}).encode())


def told(answer):
    return json.loads(answer[2])["sentence"]


PATHS = ["/", "/label.js", "/label.css", "/draw.js", "/shapes.json"]
SECRET = [
    "/api/state",
    "/api/layout",
    "/api/question?tab=me",
    "/api/row/1",
    "/api/picture/1",
    "/api/labels.csv",
    "/api/labels.json",
]


@pytest.mark.parametrize("path", PATHS)
def test_the_page_has_a_strict_policy_and_nothing_of_the_table(app, path):
    status, headers, body, _ = request(app, "GET", path, key=None)
    assert status == 200
    assert {name: headers[name.lower()] for name in HEADERS} == HEADERS
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert b"row 1" not in body
    assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in body


@pytest.mark.parametrize("path", SECRET)
@pytest.mark.parametrize("key", [None, "", "wrong", KEY + "x"])
def test_nothing_is_told_without_the_key(app, path, key):
    answer = request(app, "GET", path, key=key)
    assert answer[0] == 401
    assert "key in the address" in told(answer)


def test_nothing_is_done_without_the_key(app, session):
    for path in ("/api/do", "/api/write"):
        assert request(app, "POST", path, key="wrong", body=b'{"kind": "undo"}')[0] == 401
    assert session.store.events() == []


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_labels_are_saved_while_the_page_is_open(app, session, tmp_path, kind):
    assert do(app, kind="answer", row=5, **{"class": "cat"})[0] == 200
    target = tmp_path / f"labels.{kind}"
    exchange.export(session, target, label="kind")  # waits for the model
    status, headers, body, _ = request(app, "GET", f"/api/labels.{kind}")
    assert status == 200
    assert headers["content-type"].startswith({"csv": "text/csv", "json": "application/json"}[kind])
    assert body == target.read_bytes()
    assert body.count(b"cat") > 1


@pytest.mark.parametrize("path", [*PATHS, *SECRET])
def test_other_pages_are_refused(app, path):
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9000"},
        {"origin": "https://127.0.0.1:8000"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ):
        assert request(app, "GET", path, **headers)[0] == 403
    assert request(app, "GET", path, host="evil.example:8000")[0] == 421
    assert request(app, "GET", path, host="192.168.1.5:8000")[0] == 421
    assert request(app, "GET", path, host="")[0] == 421


def test_our_own_page_is_answered(app):
    status, headers, body, _ = request(
        app, "GET", "/api/state?tab=me", origin="http://127.0.0.1:8000", sec_fetch_site="same-origin"
    )
    assert status == 200
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers
    assert json.loads(body)["rows"] == N


@pytest.mark.parametrize(
    ("host", "bound", "expected"),
    [
        ("localhost:1", "127.0.0.1", True),
        ("[::1]:1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("10.0.0.3:1", "127.0.0.1", False),
        ("10.0.0.3:1", "0.0.0.0", True),
        ("my.example:1", "0.0.0.0", False),
        ("desk.example:1", "desk.example", True),
        ("localhost.evil.example:1", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
    ],
)
def test_names_that_this_machine_may_be_called(host, bound, expected):
    assert may_be_called(host, bound) is expected


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/label.py", "/api/picture/../../etc/passwd",
        "/api/picture/..%2f..%2fetc%2fpasswd", "/api/picture/-1", "/api/row/..", "//etc/passwd", "/api/row/1/../../state",
    ],
)  # fmt: skip
def test_no_path_leads_anywhere_else(app, path):
    assert request(app, "GET", path)[0] == 404


def test_pictures_that_are_missing_are_told(make, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"\x89PNG")
    files = np.array(["a.png", "../out.answers", "gone.png"] + [""] * (N - 3), dtype=object)
    session = make(GIVEN, folder=tmp_path / "pictures", files=files)
    app = application(session, KEY, "127.0.0.1", dict, str)
    status, headers, body, _ = request(app, "GET", "/api/picture/0")
    assert (status, headers["content-type"], body) == (200, "image/png", b"\x89PNG")
    for row, why in (
        (1, "no picture ../out.answers"),
        (2, "no picture gone.png"),
        (3, "has no picture"),
        (10**9, "has no picture"),
    ):
        answer = request(app, "GET", f"/api/picture/{row}")
        assert answer[0] == 404
        assert why in told(answer)


def test_a_large_upload_is_refused_unread(app, session):
    huge = (bytes(2**20) for _ in range(1024))  # a gigabyte
    answer = request(app, "POST", "/api/do", parts=huge, content_length=str(2**30))
    assert (answer[0], answer[3]) == (413, 0)
    answer = request(app, "POST", "/api/do", parts=huge, transfer_encoding="chunked")
    assert (answer[0], answer[3]) == (413, 1)
    answer = request(app, "POST", "/api/do", parts=(b"x" * 1000 for _ in range(10**6)), content_length="10")
    assert answer[0] == 413
    assert answer[3] <= MAX_BODY // 1000 + 1
    assert request(app, "POST", "/api/do", content_length="-1")[0] == 413
    assert session.store.events() == []


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"not json", b"[" * 10_000, b'{"kind": "answer"}', b'{"kind":"answer","key":"k","tab":"t","row":"1","class":"ant"}',
        b'{"kind":"answer","key":"k","tab":"t","row":true,"class":"ant"}', b'{"kind":"answer","key":"k","tab":"t","row":5,"class":5}',
        b'{"kind":"answer","key":"k","tab":"t","row":5,"class":""}', b'{"kind":"drop","key":"k","tab":"t"}', b'\xff\xfe',
        b'{"kind":"answer","key":"k","tab":"t","row":99999999999999999999,"class":"ant"}',
    ],
)  # fmt: skip
def test_what_the_page_does_not_send_is_refused(app, session, body):
    answer = request(app, "POST", "/api/do", body=body)
    assert answer[0] == 409
    assert told(answer)
    assert session.store.events() == []


def test_a_session_by_requests(app, session):
    assert session.adviser.settled()
    row = json.loads(request(app, "GET", "/api/question?tab=me")[2])["row"]
    state = json.loads(do(app, kind="answer", row=row, **{"class": "bee"})[2])
    assert state["labels"] == 4
    assert do(app, kind="answer", row=row, **{"class": "bee"})[0] == 200  # sent twice
    assert len(session.store.events()) == 1
    assert json.loads(do(app, kind="undo", key="2")[2])["labels"] == 3
    assert do(app, kind="skip", row=row, key="3")[0] == 200
    other = json.loads(request(app, "GET", "/api/question?tab=me")[2])["row"]
    assert do(app, kind="unsure", row=other, key="4")[0] == 200
    assert (
        json.loads(do(app, kind="add", key="5", **{"class": "<b>dog</b>"})[2])["classes"][-1]["name"]
        == "<b>dog</b>"
    )
    assert [
        each["name"]
        for each in json.loads(do(app, kind="remove", key="6", **{"class": "<b>dog</b>"})[2])["classes"]
    ] == ["ant", "bee", "cat"]
    assert told(do(app, kind="undo", key="7", tab="nobody")) == "There is nothing to undo on this page."
    assert told(request(app, "POST", "/api/write")) == "written"


def test_a_port_that_is_taken_is_told():
    with listen("127.0.0.1", None) as first:
        port = first.getsockname()[1]
        with pytest.raises(ValueError, match=f"Port {port} at 127.0.0.1 cannot be listened on"):
            listen("127.0.0.1", port)
        with listen("127.0.0.1", None, before=port) as other:  # the one of before is taken: any other will do
            assert other.getsockname()[1] != port
    with listen("127.0.0.1", None, before=port) as again:
        assert again.getsockname()[1] == port
    with pytest.raises(ValueError, match=r"203\.0\.113\.1"):
        listen("203.0.113.1", None)
