"""`streamgauge serve`: what it shows, and whom it does not answer."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from sample_run import KAFKA, KAFKA_SYNC, LOG
from streamgauge.cli.app import run as program
from streamgauge.report import html
from streamgauge.serve.pages import SIDES_MAX, Pages
from streamgauge.serve.shelf import Shelf
from streamgauge.web.access import Access
from streamgauge.web.server import Answer, Asked, PageServer
from test_pages import made, text_of

LOCAL = Access("127.0.0.1", 8642)
FOREIGN = 'x" onclick=alert(1) <b>'


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("shelf")
    made(found, "first", (LOG, KAFKA))
    made(found, "second", (KAFKA_SYNC,), days=3)
    made(found, "third", (replace(LOG, version=FOREIGN),), days=5)
    html.write(found / "first")
    (found / "secret.txt").write_text("not for anybody")
    (found / "first" / "notes.txt").write_text("not a report")
    return found


@pytest.fixture(scope="module")
def pages(out: Path) -> Pages:
    return Pages(Shelf(out))


def answered(pages: Pages, target: str) -> Answer:
    return pages.answer(Asked.of(target))


def shown(pages: Pages, target: str) -> str:
    answer = answered(pages, target)
    assert answer.status == 200, answer.body
    return answer.body.decode()


def listed(pages: Pages, **wanted: str) -> set[str]:
    page = shown(pages, f"/?{urlencode(wanted)}")
    return {name for name in ("first", "second", "third") if f'value="{name}"' in page}


# ---------------------------------------------------------------------- the list


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {"first", "second", "third"}),
        ({"system": "kafka"}, {"first", "second"}),
        ({"system": "kafka", "level": "L3"}, {"second"}),
        ({"version": FOREIGN}, {"third"}),
        ({"workload": "1-topic-16-partitions-100b"}, {"first", "second", "third"}),
        ({"workload": "another"}, set()),
        ({"verdict": "valid"}, {"first", "second", "third"}),
        ({"verdict": "invalid"}, set()),
        ({"since": "2026-09-22"}, {"second", "third"}),
        ({"until": "2026-09-24"}, {"first", "second"}),
        ({"search": "linger_ms=1.0 NUM.IO.threads=8"}, {"first", "second", "third"}),
        ({"search": "linger_ms=9"}, set()),
        ({"search": "second"}, {"second"}),
    ],
)
def test_the_list_is_narrowed(pages: Pages, wanted: dict[str, str], found: set[str]) -> None:
    assert listed(pages, **wanted) == found


def test_a_run_is_data_and_no_markup(pages: Pages) -> None:
    page = shown(pages, "/")
    assert "<b>" not in page
    assert "x&#34; onclick=alert(1) &lt;b&gt;" in page
    assert "<script>alert" not in shown(pages, f"/?search={quote('<script>alert(1)</script>')}")


def test_a_run_that_changes_is_read_again_and_one_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    assert shelf.entries() == []
    made(tmp_path, "a", (LOG,))
    assert [one.run for one in shelf.entries()] == ["a"]
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(manifest | {"status": "failed", "seed": 7}))
    assert [one.status for one in shelf.entries()] == ["failed"]
    (tmp_path / "a" / "manifest.json").write_text("{")
    assert shelf.entries() == []


# ---------------------------------------------------------------------- comparisons and reports


def test_what_is_ticked_is_compared_by_the_same_page_as_in_the_terminal(
    pages: Pages, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = text_of(shown(pages, "/compare?side=first/kafka&side=second&side=third"))
    file = out / "compared.html"
    asked = ["compare", "first:kafka", "second", "third", "--out", str(out), "--html", str(file)]
    assert program(asked) == 0
    capsys.readouterr()
    linked = page.replace(" its report , over time", "")
    assert linked == text_of(file.read_text("utf-8"))
    assert "2 systems or more" not in page


def test_one_run_of_two_systems_is_compared_with_itself(pages: Pages) -> None:
    assert "Apache Kafka 4.3.1 against Reference log 0.1.0" in text_of(shown(pages, "/compare?side=first"))


def test_a_workload_leads_to_the_page_of_its_history(
    pages: Pages, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "1-topic-16-partitions-100b"
    assert f'<a href="/history?workload={name}">{name}</a>' in shown(pages, "/")
    assert f'href="/history?workload={name}"' in shown(pages, "/compare?side=first")
    page = shown(pages, f"/history?workload={name}&figure=publish_rate_msgs_s")
    assert "form-action 'self'" in page
    for run in ("first", "second", "third"):
        assert f'<a href="/runs/{run}/report.html">{run}</a>' in page
        assert f'name="side" value="{run}"' in page
    assert f'href="/?workload={name}"' in page
    file = out / "history.html"
    asked = ["history", name, "--figure", "publish_rate_msgs_s", "--out", str(out), "--html", str(file)]
    assert program(asked) == 0
    capsys.readouterr()
    alone = file.read_text("utf-8")
    assert "<form" not in alone
    assert "<input" not in alone
    sentences = text_of(alone)
    for part in (
        "Publish rate of",
        "valid runs: at least 6 are needed",
        "Filled: the median over a run's trials",
    ):
        assert part in sentences
        assert part in text_of(page)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "no workload is named"),
        ("workload=nothing", "nothing"),
        ("workload=1-topic-16-partitions-100b&figure=publish_ms.p98", "no figure 'publish_ms.p98'"),
        ("workload=%3Cscript%3E", "<script>"),
    ],
)
def test_a_history_that_is_not_there_is_said(pages: Pages, query: str, why: str) -> None:
    answer = answered(pages, f"/history?{query}")
    assert answer.status == 400
    assert b"<script>alert" not in answer.body
    assert why in text_of(answer.body.decode())


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "nothing is ticked"),
        ("side=third", "expected two runs or more"),
        ("side=first&side=nothing", "no run 'nothing'"),
        ("side=first&side=second/pulsar", "measured no system 'pulsar'"),
        ("side=../first&side=second", "no run '..'"),
        ("&".join(["side=first"] * (SIDES_MAX + 1)), f"expected {SIDES_MAX} at most"),
    ],
)
def test_what_cannot_be_compared_is_said(pages: Pages, query: str, why: str) -> None:
    answer = answered(pages, f"/compare?{query}")
    assert answer.status == 400
    assert why in text_of(answer.body.decode())


def test_a_report_is_served_as_it_is_in_an_origin_of_its_own(pages: Pages, out: Path) -> None:
    answer = answered(pages, "/runs/first/report.html")
    assert answer.body == (out / "first" / "report.html").read_bytes()
    told = answer.policy
    assert told.startswith("sandbox allow-scripts;"), "no allow-same-origin: it cannot read the other runs"
    assert "default-src 'none'" in told
    assert answered(pages, "/runs/first/").location == "/runs/first/report.html"
    missing = answered(pages, "/runs/second/report.html")
    assert missing.status == 404
    assert "streamgauge report second makes it" in missing.body.decode()


@pytest.mark.parametrize(
    "target",
    [
        "/secret.txt",
        "/runs/secret.txt",
        "/runs/../secret.txt",
        "/runs/first/notes.txt",
        "/runs/first/manifest.json",
        "/runs/first/../../secret.txt",
        "/runs/first/%2e%2e/%2e%2e/secret.txt",
        "/runs/%2e%2e/report.html",
        "/runs//report.html",
        "/runs/first%00/report.html",
        "//runs/first/report.html/..",
        "/etc/passwd",
    ],
)
def test_no_path_leads_out(pages: Pages, target: str) -> None:
    answer = answered(pages, target)
    assert answer.status == 404
    assert b"not for anybody" not in answer.body
    assert b"not a report" not in answer.body


def test_a_run_with_a_link_in_it_is_not_opened(tmp_path: Path) -> None:
    made(tmp_path, "a", (LOG,))
    html.write(tmp_path / "a")
    pages = Pages(Shelf(tmp_path))
    assert answered(pages, "/runs/a/report.html").status == 200
    (tmp_path / "a" / "report.html").unlink()
    (tmp_path / "a" / "report.html").symlink_to("/etc/hostname")
    assert answered(pages, "/runs/a/report.html").status == 400


# ---------------------------------------------------------------------- whom it answers


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "127.0.0.1", "localhost:1", "[::1]:8642", "127.8.8.8"])
def test_this_machine_is_answered(host: str) -> None:
    assert LOCAL.refusal("GET", {"host": host}) is None


@pytest.mark.parametrize(
    "host",
    [
        *(
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8642",
            "10.0.0.1",
            "[::1",
            "a, b",
        ),
        *("evil@127.0.0.1", "127.0.0.1/evil", "127.0.0.1, 127.0.0.1", "[localhost]"),
    ],
)
def test_a_name_that_was_led_here_is_not(host: str) -> None:
    refusal = LOCAL.refusal("GET", {"host": host})
    assert refusal is not None
    assert refusal[0] == 403


def test_another_sites_page_may_lead_here_and_not_ask() -> None:
    asks = {"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    refusal = LOCAL.refusal("GET", asks)
    assert refusal is not None
    assert refusal[0] == 403
    assert LOCAL.refusal("GET", asks | {"sec-fetch-mode": "navigate"}) is None


@pytest.mark.parametrize(
    ("shown", "is_answered"),
    [
        (None, False),
        ("Basic " + base64.b64encode(b"anybody:s3cret").decode(), True),
        ("Bearer s3cret", True),
        ("Basic " + base64.b64encode(b"s3cret:anybody").decode(), False),
        ("Basic no base64", False),
        ("Bearer ", False),
        ("Digest s3cret", False),
    ],
)
def test_beyond_loopback_a_token_is_asked_for(shown: str | None, is_answered: bool) -> None:
    gate = Access("10.0.0.7", 8642, "s3cret")
    headers = {"host": "10.0.0.7:8642"} | ({} if shown is None else {"authorization": shown})
    refusal = gate.refusal("GET", headers)
    assert (refusal is None) == is_answered
    if refusal is not None:
        assert refusal[0] == 401
    assert gate.refusal("GET", headers | {"host": "evil.example"}) is not None
    by_name = headers | {"host": f"{socket.gethostname()}:8642"}
    assert (gate.refusal("GET", by_name) is None) == is_answered


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--listen", "0.0.0.0:0"], "expected --token-file FILE as well"),
        (["--listen", "[::]:0"], "expected --token-file FILE as well"),
        (["--listen", "8642"], "expected ADDRESS:PORT"),
        (["--listen", "127.0.0.1:70000"], "expected ADDRESS:PORT"),
        (["--token-file", "nothing"], "cannot be read"),
    ],
)
def test_what_must_not_be_served_is_refused_before_anything_listens(
    out: Path, arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(["serve", str(out), *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_directory_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program(["serve", str(tmp_path / "none")]) == 2
    assert "no such directory" in capsys.readouterr().err


# ---------------------------------------------------------------------- over HTTP


@pytest.fixture(scope="module")
def server(pages: Pages) -> Iterator[PageServer]:
    found = PageServer("--listen", Access("127.0.0.1", 0), pages.answer)
    found.start()
    yield found
    found.stop()


def asked(server: PageServer, method: str, target: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(server.address, timeout=10)
    connection.request(method, target, headers={"Connection": "close", **headers})
    return connection.getresponse()


def test_it_speaks_http(server: PageServer) -> None:
    answer = asked(server, "GET", "/")
    assert answer.status == 200
    assert b"first" in answer.read()
    for name, value in (
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
    ):
        assert answer.headers[name] == value
    told = str(answer.headers["Content-Security-Policy"])
    assert "default-src 'none'" in told
    assert "form-action 'self'" in told
    assert "frame-ancestors 'none'" in told
    assert "Python" not in str(answer.headers["Server"])


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
def test_only_get(server: PageServer, method: str) -> None:
    answer = asked(server, method, "/")
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"


def test_a_rebound_name_gets_nothing(server: PageServer) -> None:
    answer = asked(server, "GET", "/", Host="evil.example")
    assert answer.status == 403
    assert b"/runs/first" not in answer.read()
    assert asked(server, "GET", "/" + "x" * 9000).status == 414
