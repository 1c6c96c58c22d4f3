"""--live without a browser: what the page is told, who is waited for at the end, and how the options are read."""

from __future__ import annotations

import dataclasses
import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import watched_run as watched
from sample_run import KAFKA, LOG, workload, write_run
from streamgauge.cli.optional_value import ANY_PORT, with_address
from streamgauge.cli.pages import Pages, parse_pages
from streamgauge.cli.watch_feed import Feed
from streamgauge.cli.watch_page import DRAWN_MAX, POINTS_MAX, PageObserver
from streamgauge.cli.watching import Watching
from streamgauge.report import charts, live
from streamgauge.report.answer import answer
from streamgauge.report.run import read_run
from streamgauge.systems.support import processes
from streamgauge.vocabulary.errors import InputError
from streamgauge.web.access import Access

SAMPLES_NS = [500_000, 1_000_000, 2_000_000]


class Viewer:
    """Puts together what the page is told, as assets/live.js does."""

    def __init__(self, page: PageObserver) -> None:
        self._page = page
        self.since = 0
        self.trials: dict[int, dict[str, Any]] = {}
        self.lines: list[str] = []
        self.rows: dict[int, dict[str, Any]] = {}
        self.subjects: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}

    def look(self) -> Viewer:
        told = json.loads(self._page.state(self.since, 0.0))
        assert told["since"] == self.since
        self.since, self.last = told["version"], told
        self.subjects = told["subjects"] if told["subjects"] is not None else self.subjects
        self.lines += [line[2] for line in told["lines"]]
        self.rows |= {row["number"]: row for row in told["rows"]}
        for one in told["trials"]:
            before = self.trials.get(one["index"], {"points": [], "away": []})
            kept = {name: [] if one["gone"] else before[name] + one[name] for name in ("points", "away")}
            self.trials[one["index"]] = {**one, **kept}
        return self


@pytest.fixture
def page() -> PageObserver:
    return PageObserver(cores=2)


def test_who_comes_late_or_reloads_has_what_the_others_have(page: PageObserver, tmp_path: Path) -> None:
    feed = Feed([page])
    early = Viewer(page).look()
    watched.begin(feed, tmp_path)
    for index in range(5):
        if index < 2:
            feed.phase_started("measure" if index else "warm-up", 5.0)
        watched.second(feed, index, "measure" if index else "warm-up", SAMPLES_NS)
        early.look()
    late = Viewer(page).look()
    assert early.trials == late.trials
    assert early.lines == late.lines
    assert early.subjects == late.subjects
    (trial,) = late.trials.values()
    assert [point["time"] for point in trial["points"]] == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert trial["points"][2]["rate"] == watched.RATE - 1
    assert trial["points"][2]["cpu_system"] == 0.5
    assert trial["measure"] == [1.0, None]
    assert trial["publish"][-1] == pytest.approx(2.0, rel=1e-3)
    assert late.last["second"]["target_msgs_s"] == watched.RATE
    assert late.last["left"]["left_s"] == 40


def test_points_are_those_of_the_report(tmp_path: Path) -> None:
    """The same rows give the same numbers, whether one by one or all at once."""
    write_run(tmp_path, (LOG,), workload(rate=2000, seconds=6), repeats=1)
    run = read_run(tmp_path)
    (trial,) = run.results
    directory = run.directory_of(trial)
    everything, resources = watched.read_rows(directory)
    data = charts.data(run)["trials"][0]
    times = []
    for index in sorted({row["interval"] for row in everything}):
        rows = [row for row in everything if row["interval"] == index]
        own = [row for row in resources if row["interval"] == index]
        found = live.point(watched.intervals_of(rows), own, trial.headline, charts._load_end_s(trial))
        times.append(found.values["time"])
        at = data["time"].index(found.values["time"])
        for name, value in found.values.items():
            if name != "time":
                assert value == data["series"][name][at], (name, at)
    assert times == data["time"]


def test_a_trial_made_again_takes_the_place_of_the_first(page: PageObserver, tmp_path: Path) -> None:
    feed, viewer = Feed([page]), Viewer(page)
    watched.begin(feed, tmp_path)
    watched.second(feed, 0, "measure", SAMPLES_NS)
    viewer.look()
    feed.trial_started(watched.start(1))
    watched.second(feed, 0, "measure", SAMPLES_NS)
    viewer.look()
    assert [trial["gone"] for trial in viewer.trials.values()] == [True, False]
    assert [subject["trials"] for subject in viewer.subjects] == [[1]]
    assert viewer.trials[0]["points"] == []


def test_what_is_kept_is_bounded(page: PageObserver, tmp_path: Path) -> None:
    feed = Feed([page])
    watched.begin(feed, tmp_path)
    interval = watched.interval(0, "measure", SAMPLES_NS)
    for index in range(POINTS_MAX + 20):
        feed.recorded([{**interval, "index": index, "start_s": float(index)}])
    for number in range(2, DRAWN_MAX + 10):
        feed.trial_started(watched.start(number, workload=f"w{number}"))
    viewer = Viewer(page).look()
    assert len([one for one in viewer.trials.values() if not one["gone"]]) == DRAWN_MAX
    assert all(len(one["points"]) <= POINTS_MAX for one in viewer.trials.values())


def test_rates_of_a_curve_are_lines_of_their_own(page: PageObserver, tmp_path: Path) -> None:
    feed = Feed([page])
    watched.begin(feed, tmp_path, watched.start(1, rate=1000))
    feed.trial_started(watched.start(2, rate=2000))
    feed.trial_started(watched.start(3, rate=None))
    labels = [subject["label"] for subject in Viewer(page).look().subjects]
    assert labels == ["Apache Kafka", "Apache Kafka 2,000 msg/s", "Apache Kafka maximum rate"]


def test_trials_that_are_over_have_their_word_and_the_verdict_is_the_reports(
    page: PageObserver, tmp_path: Path
) -> None:
    write_run(tmp_path, (LOG, KAFKA), workload(rate=2000, seconds=6), repeats=1)
    results = read_run(tmp_path).results
    feed, viewer = Feed([page]), Viewer(page)
    feed.run_started(tmp_path, 2)
    for result in results:
        feed.trial_started(watched.start(result.trial, workload=result.workload.name))
        feed.trial_ended(result)
    viewer.look()
    assert [row["word"] for row in viewer.rows.values()] == [result.validity.called for result in results]
    assert viewer.last["verdict"] == [answer(results)]
    assert viewer.last["done"] == 2


def test_a_verdict_that_cannot_be_made_ends_no_run(
    page: PageObserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, (LOG,), workload(rate=2000, seconds=6), repeats=1)
    monkeypatch.setattr("streamgauge.cli.watch_page.so_far", lambda *_: 1 / 0)
    feed = Feed([page])
    feed.run_started(tmp_path, 1)
    feed.trial_started(watched.start(1, 1))
    feed.trial_ended(read_run(tmp_path).results[0])
    assert "no verdict so far: division by zero" in Viewer(page).look().lines


def test_a_question_waits_for_something_new(page: PageObserver) -> None:
    seen = Viewer(page).look().since
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(json.loads(page.state(seen, 30.0))))
    page.note("first")
    asking.start()
    asking.join(20)
    assert [line[2] for line in answers[0]["lines"]] == ["first"]


# ---------------------------------------------------------------------- the servers


def get(address: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def open_both(capsys: pytest.CaptureFixture[str], pages: Pages) -> tuple[Watching, dict[str, str]]:
    found = Watching(pages)
    told = dict(line.split(": ", 1) for line in capsys.readouterr().err.splitlines())
    return found, {name: url.removeprefix("http://").partition("/")[0] for name, url in told.items()}


LOOPBACK = Access("127.0.0.1", 0)


def test_page_and_metrics_are_served_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    watched_run, at = open_both(capsys, Pages(LOOPBACK, LOOPBACK))
    with watched_run:
        assert set(at) == {"live", "metrics"}
        assert b"/live.js" in get(at["live"], "/")[1]
        assert b"uPlot" in get(at["live"], "/live.js")[1]
        assert get(at["live"], "/live.css")[0] == 200
        watched_run.observers[0].note("something")
        assert json.loads(get(at["live"], "/state?since=no")[1])["lines"][0][1:] == ["note", "something"]
        assert get(at["live"], "/report.html") == (404, b"there is no report yet\n")
        assert get(at["live"], "/../../etc/passwd")[0] == 404
        assert get(at["live"], "/metrics")[0] == 404
        assert get(at["metrics"], "/metrics")[1].endswith(b"# EOF\n")


def test_one_address_serves_both(capsys: pytest.CaptureFixture[str]) -> None:
    port = processes.free_ports(1)[0]
    access = Access("127.0.0.1", port)
    watched_run, at = open_both(capsys, Pages(access, access))
    with watched_run:
        assert at["live"] == at["metrics"] == f"127.0.0.1:{port}"
        assert get(at["live"], "/metrics")[0] == 200
        assert get(at["live"], "/")[0] == 200


def end(watched_run: Watching, directory: Path) -> None:
    for observer in watched_run.observers:
        observer.run_started(directory, 1)
        observer.run_ended(directory, "complete")
    (directory / "report.html").write_text("<html><body>\n<p>figures</p></body></html>", "utf-8")
    watched_run.reported(directory)


def test_a_viewer_is_given_the_report_and_then_nobody_is_waited_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    watched_run, at = open_both(capsys, Pages(live=LOOPBACK))
    found: list[bytes] = []

    def look() -> None:
        since = 0
        while True:
            told = json.loads(get(at["live"], f"/state?since={since}&viewer=a")[1])
            since = told["version"]
            if told["ended"] and told["ended"]["report"]:
                found.append(get(at["live"], "/report.html?viewer=a")[1])
                return

    with watched_run:
        watched_run.observers[0].note("something")
        viewer = threading.Thread(target=look, daemon=True)
        viewer.start()
        while not watched_run._viewers.wait():
            time.sleep(0.01)
        end(watched_run, tmp_path)
    viewer.join(10)
    assert b"figures" in found[0]
    assert f"{tmp_path}/report.html".encode() in found[0]


def test_without_viewers_the_end_takes_no_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgauge.cli.watching.time.sleep", lambda _: pytest.fail("waited"))
    watched_run, _ = open_both(capsys, Pages(LOOPBACK, LOOPBACK))
    with watched_run:
        end(watched_run, tmp_path)


def test_the_last_scrape_is_waited_for_as_long_as_scrapes_are_apart(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    watched_run, at = open_both(capsys, Pages(metrics=LOOPBACK))
    texts: list[bytes] = []
    with watched_run:
        assert watched_run._scrapes.next_within_s() is None
        for _ in range(2):
            get(at["metrics"], "/metrics")
            time.sleep(0.1)
        end(watched_run, tmp_path)
        later = threading.Timer(0.3, lambda: texts.append(get(at["metrics"], "/metrics")[1]))
        later.start()
    later.join(10)
    assert b'streamgauge_phase="ended"} 1' in texts[0]


# ---------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["--live"], [f"--live={ANY_PORT}"]),
        (["--live", "orders.yaml"], [f"--live={ANY_PORT}", "orders.yaml"]),
        (["--live", "--rate", "1k"], [f"--live={ANY_PORT}", "--rate", "1k"]),
        (["--live", "7480", "orders.yaml"], ["--live", "7480", "orders.yaml"]),
        (["--live", "0.0.0.0:80"], ["--live", "0.0.0.0:80"]),
        (["--live", "[::1]:80"], ["--live", "[::1]:80"]),
        (["--live=80", "x"], ["--live=80", "x"]),
        (["--", "--live"], ["--", "--live"]),
    ],
)
def test_an_address_is_told_from_what_is_none(given: list[str], read: list[str]) -> None:
    assert with_address(given) == read


def test_a_token_without_pages_is_refused() -> None:
    with pytest.raises(InputError, match="leave it out"):
        parse_pages(None, None, "token")


def test_one_token_is_for_both(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-that-is-long-enough")
    file.chmod(0o600)
    pages = parse_pages("0.0.0.0:0", "10.0.0.1:81", str(file))
    assert pages.live is not None
    assert pages.metrics == dataclasses.replace(pages.live, host="10.0.0.1", port=81)


def test_more_viewers_than_there_are_connections_are_all_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.cli.watching.HOLD_S", 2.0)
    monkeypatch.setattr("streamgauge.cli.watching.CROWDED_HOLD_S", 0.2)
    with Watching(Pages(live=Access("127.0.0.1", 0))) as watching:
        (server,) = watching._servers

        def follow(viewer: int) -> list[int]:
            """Nothing is new: each question is held."""
            connection = http.client.HTTPConnection(server.address, timeout=60)
            found, since = [], 0
            for _ in range(3):
                connection.request("GET", f"/state?since={since}&viewer={viewer}")
                answer = connection.getresponse()
                found.append(answer.status)
                since = json.loads(answer.read())["version"]
            connection.close()
            return found

        with ThreadPoolExecutor(24) as viewers:
            assert list(viewers.map(follow, range(24))) == [[200, 200, 200]] * 24
