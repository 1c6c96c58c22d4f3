"""Who may read a page that the lab serves: what is refused before anything is answered."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.waiting import wait_until
from streamgauge.web.access import OWN_PAGE, Access, parse_access
from streamgauge.web.server import CONNECTIONS_MAX, HTML, WAITING_MAX, Answer, Asked, PageServer

TOKEN = "a-token-that-is-long-enough"


def answer(asked: Asked) -> Answer:
    if asked.path == "/broken":
        raise RuntimeError("broken")
    return Answer(f"{asked.path} {sorted(asked.query.items())}".encode(), HTML, policy=OWN_PAGE)


def served(access: Access) -> PageServer:
    server = PageServer("--live", access, answer)
    server.start()
    return server


@pytest.fixture(scope="module")
def open_page() -> Iterator[PageServer]:
    server = served(Access("127.0.0.1", 0))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def closed_page() -> Iterator[PageServer]:
    server = served(Access("127.0.0.1", 0, TOKEN))
    yield server
    server.stop()


def ask(
    server: PageServer, headers: dict[str, str] | None = None, method: str = "GET", path: str = "/a?b=c"
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(server.address, timeout=10)
    connection.request(method, path, headers=headers or {})
    found = connection.getresponse()
    found.body = found.read()  # type: ignore[attr-defined]
    connection.close()
    return found


def test_a_page_is_answered_with_every_header_that_keeps_others_out(open_page: PageServer) -> None:
    found = ask(open_page)
    assert (found.status, found.body) == (200, b"/a [('b', 'c')]")  # type: ignore[attr-defined]
    assert found.getheader("Content-Security-Policy") == OWN_PAGE
    assert found.getheader("X-Content-Type-Options") == "nosniff"
    assert found.getheader("Cross-Origin-Resource-Policy") == "same-origin"
    assert found.getheader("X-Frame-Options") == "DENY"
    assert found.getheader("Cache-Control") == "no-store"
    assert found.getheader("Referrer-Policy") == "no-referrer"
    assert found.getheader("Access-Control-Allow-Origin") is None
    assert found.getheader("Server") == "streamgauge"


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1", "127.0.0.9:80", "[::1]:80", "LOCALHOST"])
def test_names_of_loopback_are_answered(open_page: PageServer, host: str) -> None:
    assert ask(open_page, {"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""],
)
def test_another_host_is_refused(open_page: PageServer, host: str) -> None:
    assert ask(open_page, {"Host": host}).status == 403


def test_what_another_origin_asks_is_refused(open_page: PageServer) -> None:
    own = f"http://{open_page.address}"
    assert ask(open_page, {"Origin": own}).status == 200
    for origin in ("http://evil.example", "null", own.replace("http:", "https:"), "http://127.0.0.1:1"):
        assert ask(open_page, {"Origin": origin}).status == 403, origin
    assert ask(open_page, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status == 403
    assert ask(open_page, {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}).status == 403
    assert ask(open_page, {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}).status == 200
    assert ask(open_page, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status == 200


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_there_is_get_alone(open_page: PageServer, method: str) -> None:
    found = ask(open_page, method=method)
    assert found.status == 405
    assert found.getheader("Allow") == "GET"


def test_the_token_comes_before_everything_else(closed_page: PageServer) -> None:
    basic = base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
    wrong = base64.b64encode(f"anyone:{TOKEN}x".encode()).decode()
    for shown in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
        assert ask(closed_page, {"Authorization": shown, "Host": "localhost:80"}).status == 200, shown
        assert ask(closed_page, {"Authorization": shown, "Host": "lab.example:80"}).status == 403, shown
    for shown in (
        "",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Basic {wrong}",
        "Basic %%%",
        "Basic /w==",
        f"Digest {TOKEN}",
        TOKEN,
    ):
        found = ask(closed_page, {"Authorization": shown}, path="/nowhere")
        assert found.status == 401, shown
        assert (found.getheader("WWW-Authenticate") or "").startswith("Basic ")
    assert (
        ask(closed_page, {"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}).status == 403
    )
    assert ask(closed_page, method="POST").status == 401


def test_a_failure_ends_its_connection_and_nothing_else(
    open_page: PageServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(open_page, path="/broken")
    assert ask(open_page, path="/?" + "&".join(f"k{at}=1" for at in range(40))).status == 400
    assert ask(open_page).status == 200
    assert capfd.readouterr() == ("", "")


def test_a_request_has_a_deadline_however_slowly_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.web.server.REQUEST_S", 0.3)
    server = served(Access("127.0.0.1", 0))
    host, _, port = server.address.rpartition(":")
    began_s = time.monotonic()
    with socket.create_connection((host, int(port)), 10) as slow:
        slow.settimeout(0.05)
        ended = False
        while not ended and time.monotonic() - began_s < 3:
            try:
                slow.sendall(b"G")
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
    assert ended
    assert 0.3 <= time.monotonic() - began_s < 3
    server.stop()


def test_a_header_that_comes_twice_is_neither_of_both(open_page: PageServer) -> None:
    host, _, port = open_page.address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as twice:
        twice.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert twice.recv(12) == b"HTTP/1.1 403"


def connected(server: PageServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def status(connection: socket.socket) -> bytes:
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection.recv(12)


def test_who_has_an_answer_makes_room_for_who_has_none() -> None:
    server = served(Access("127.0.0.1", 0))
    with contextlib.ExitStack() as kept:
        for _ in range(2 * CONNECTIONS_MAX):
            assert status(kept.enter_context(connected(server))) == b"HTTP/1.1 200"
    server.stop()


def test_who_says_nothing_makes_room() -> None:
    server = served(Access("127.0.0.1", 0))
    with contextlib.ExitStack() as kept:
        for _ in range(CONNECTIONS_MAX + WAITING_MAX - 1):
            kept.enter_context(connected(server))
        assert status(kept.enter_context(connected(server))) == b"HTTP/1.1 200"
    server.stop()


def test_who_finds_no_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.web.server.WAIT_S", 0.2)
    goes_on = threading.Event()

    def hold(asked: Asked) -> Answer:
        goes_on.wait(60)
        return answer(asked)

    server = PageServer("--live", Access("127.0.0.1", 0, TOKEN), hold)
    server.start()
    shown = {"Authorization": f"Bearer {TOKEN}"}
    with ThreadPoolExecutor(CONNECTIONS_MAX) as readers:
        held = [readers.submit(ask, server, shown) for _ in range(CONNECTIONS_MAX)]
        wait_until(lambda: None if server.seats.free == 0 else "every seat is taken", 30, 0.02)
        one_more = ask(server, shown)
        assert one_more.status == 503
        assert one_more.body.startswith(b"there is room for 16 readers at a time")  # type: ignore[attr-defined]
        assert one_more.headers["Retry-After"]
        assert ask(server).status == 401, "who may not read is told nothing of those who may"
        goes_on.set()
        assert {one.result().status for one in held} == {200}
    assert ask(server, shown).status == 200
    server.stop()


def test_more_than_can_wait_are_closed() -> None:
    goes_on = threading.Event()

    def hold(asked: Asked) -> Answer:
        goes_on.wait(60)
        return answer(asked)

    server = PageServer("--live", Access("127.0.0.1", 0), hold)
    server.start()
    with contextlib.ExitStack() as kept:
        for _ in range(CONNECTIONS_MAX + WAITING_MAX):
            kept.enter_context(connected(server)).sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        extra = kept.enter_context(connected(server))
        with contextlib.suppress(ConnectionResetError):
            assert extra.recv(1) == b""
        goes_on.set()
    server.stop()


def test_many_readers_who_keep_their_connections_take_turns() -> None:
    server = served(Access("127.0.0.1", 0))

    def follow(_: int) -> int:
        """As a browser does: on the same connection while it is kept, and on a new one when it is not."""
        found, connection = 0, http.client.HTTPConnection(server.address, timeout=30)
        for _ in range(20):
            connection.request("GET", "/")
            had = connection.getresponse()
            had.read()
            found += had.status == 200
            if had.will_close:
                connection.close()
        connection.close()
        return found

    with ThreadPoolExecutor(24) as readers:
        assert list(readers.map(follow, range(24))) == [20] * 24
    server.stop()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("7480", "127.0.0.1", 7480),
        ("0", "127.0.0.1", 0),
        (":80", "127.0.0.1", 80),
        ("localhost:80", "127.0.0.1", 80),
        ("[::1]:80", "::1", 80),
    ],
)
def test_addresses_of_loopback_need_no_token(text: str, host: str, port: int) -> None:
    assert parse_access("--live", text, None) == Access(host, port)


@pytest.mark.parametrize(
    "text", ["", "orders.yaml", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "lab.example:80", "1.2.3:80"]
)
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(InputError, match=r"expected PORT or HOST:PORT"):
        parse_access("--live", text, None)


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::]:80", "10.0.0.5:80"])
def test_beyond_loopback_a_token_is_needed(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="--token-file"):
        parse_access("--live", text, None)
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    found = parse_access("--live", text, file)
    assert found.token == TOKEN
    assert TOKEN not in repr(found)


def test_a_token_that_can_be_read_or_guessed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(InputError, match="--token-file"):
        parse_access("--live", "80", file)
    file.write_text(TOKEN)
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        parse_access("--live", "80", file)
    file.chmod(0o600)
    file.write_text("secret")
    with pytest.raises(InputError, match="can be guessed"):
        parse_access("--live", "80", file)


def test_a_port_that_is_taken_is_told(open_page: PageServer) -> None:
    with pytest.raises(
        InputError, match=r"--live 127.0.0.1:\d+: cannot listen there: Address already in use"
    ):
        PageServer("--live", Access("127.0.0.1", int(open_page.address.rpartition(":")[2])), answer)
