"""What every system passes. A test file has a class for its system, and nothing else:

    from streamgauge.conformance.suite import Conformance


    class TestToy(Conformance):
        system_name = "toy"

What a system declares that it cannot do (`System.cannot`) is tried as well: it must fail, as an expected failure with the declared
reason. What works in spite of it fails the suite, because the declaration is wrong then. A check without a feature is for all.

The system is started three times: once for most checks, once by another lab that is killed, once on three nodes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psutil
import pytest

from streamgauge.conformance.bench import ELSEWHERE, Bench, bring_up
from streamgauge.conformance.listeners import for_workers
from streamgauge.conformance.load import MESSAGES, RATE_MSGS_S, subscription
from streamgauge.model.feature import Feature
from streamgauge.model.system_kind import check_security
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem, System, TopicPlan
from streamgauge.systems.base.parts import choose, kill_together
from streamgauge.systems.registry import systems
from streamgauge.systems.support import powercut
from streamgauge.systems.support.certificates import make_certificates
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError, WorkerLost, WorkerRefused
from streamgauge.vocabulary.waiting import wait_until

FAILURES = (AssertionError, SystemInputError, SystemFailure, WorkerLost, WorkerRefused)
"""How a check fails. Anything else is an error of the suite or of the system's package, whatever it declares."""
TOLD_WITHIN_S = 10.0
GONE_WITHIN_S = 20.0
REFUSED_WITHIN_S = 5.0
PAUSE_S = 0.6
PAUSED_LOAD_S = 120.0
"""It goes on for as long as the check takes, and is ended then."""
BEFORE_FAULT_S = 0.5
FAULT_LOAD_S = 3.0

Check = TypeVar("Check", bound=Callable[..., None])


def tries(feature: Feature) -> Callable[[Check], Check]:
    """Marks the check of a feature."""

    def mark(check: Check) -> Check:
        check.feature = feature  # type: ignore[attr-defined]
        return check

    return mark


def assert_clean(audit: Mapping[str, Any], subscriptions: int = 1) -> None:
    """Every message was acknowledged and received once, unharmed, by every subscription."""
    assert audit["balanced"], audit["imbalance"]
    assert audit["sent"] == audit["acked"] > 0, audit
    assert len(audit["subscriptions"]) == subscriptions
    for one in audit["subscriptions"]:
        counts = {key: one[key] for key in ("lost", "duplicated", "corrupted", "unexpected")}
        assert (one["unique"], counts) == (audit["sent"], dict.fromkeys(counts, 0)), one


def assert_nothing_lost(audit: Mapping[str, Any]) -> None:
    """Whatever was acknowledged was received; what was sent again may have come twice."""
    assert audit["balanced"], audit["imbalance"]
    assert audit["acked"] > 0
    for one in audit["subscriptions"]:
        assert (one["lost"], one["corrupted"], one["censored"]) == (0, 0, 0), one


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that only waits to be reaped has."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def await_gone(pids: list[int]) -> None:
    """AssertionError when one of them does not end."""
    late = wait_until(
        lambda: next((f"process {pid} to be gone" for pid in pids if not is_gone(pid)), None), GONE_WITHIN_S
    )
    assert late is None, late


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


class Conformance:
    """The suite for one system."""

    system_name: ClassVar[str]
    """As its entry point is called."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Keys of a system file, for a start that is cheap (a small heap)."""

    system: ClassVar[System]
    bench: ClassVar[Bench]

    @classmethod
    def setup_class(cls) -> None:
        """Finds the system as a run does. Skips what cannot run on this machine."""
        cls.system = systems()[cls.system_name]
        missing = cls.system.missing()
        if missing is not None:
            pytest.skip(missing)
        cls.bench = Bench(cls.system, cls.options)

    @classmethod
    def teardown_class(cls) -> None:
        """Ends what was started."""
        cls.bench.close()

    @pytest.fixture(autouse=True)
    def _as_declared(self, request: pytest.FixtureRequest) -> None:
        """A check of what the system declares that it cannot do must fail."""
        feature = getattr(request.function, "feature", None)
        if feature is not None and not self.system.can(feature):
            reason = self.system.cannot[feature]
            request.applymarker(pytest.mark.xfail(strict=True, raises=FAILURES, reason=reason))

    def further_checks(self, running: RunningSystem) -> None:
        """What is true of this system alone, on the node that runs: a class for a system may have it."""

    def strangers_are_refused(self, connection: Mapping[str, Any]) -> None:
        """How this system's own protocol tells whoever speaks TLS and has no credentials, at its other addresses too: a class for a system may have it."""

    # ------------------------------------------------------------------ before anything starts

    def test_it_declares_what_others_must_know(self) -> None:
        system = self.system
        assert system.name == self.system_name
        assert re.fullmatch(r"[a-z][a-z0-9-]*", system.name)
        for text in (system.title, system.protocol, system.default_version, system.page):
            assert text
        assert 0 < system.start_time.one_node_s <= system.start_time.nodes_s
        assert system.levels
        assert all(reason.strip() for reason in system.cannot.values()), "each comes with its reason"
        assert set(self.options) <= system.option_keys

    def test_levels_are_had_as_declared_and_refused_with_those_that_are(self) -> None:
        known = {"L1", "L2", "L3", "L4"}
        for nodes, levels in ((1, self.system.levels), (3, self.system.levels_of_nodes)):
            if nodes > 1 and not self.system.can(Feature.NODES):
                continue
            for level in sorted(known):
                request = SystemRequest(nodes=nodes, level=level, options=self.options)  # type: ignore[arg-type]
                if level in levels:
                    self.system.check(request)
                    continue
                with pytest.raises(SystemInputError, match="|".join(sorted(levels))):
                    self.system.check(request)

    @pytest.mark.parametrize(
        "request_",
        [
            SystemRequest(nodes=2),
            SystemRequest(version="no version"),
            SystemRequest(connect=("nowhere",)),
        ],
        ids=["two nodes", "no version", "no address"],
    )
    def test_what_is_impossible_is_refused_before_anything_starts(self, request_: SystemRequest) -> None:
        with pytest.raises(SystemInputError):
            self.system.check(request_)

    def test_a_taken_port_is_refused_with_its_holder(self) -> None:
        if "ports" not in self.system.option_keys:
            return
        with socket.create_server(("127.0.0.1", 0)) as listener:
            taken = listener.getsockname()[1]
            with pytest.raises(SystemInputError, match=rf"port {taken} is in use by .*pid"):
                self.system.check(SystemRequest(options={**self.options, "ports": [taken]}))

    # ------------------------------------------------------------------ one node that runs

    def test_it_starts_fresh(self) -> None:
        running = self.bench.running
        assert (running.name, running.nodes, running.attached) == (self.system.name, 1, False)
        assert running.level == self.bench.level
        assert running.failure() is None
        assert running.connection["bootstrap"]
        pids = [process.pid for process in running.processes()]
        assert pids
        assert not any(is_gone(pid) for pid in pids)
        assert {part.name for part in running.parts()}
        assert all(part.waits_for() is None for part in running.parts()), "ready means that it serves"
        assert running.configuration()
        # Messages are nobody else's to read, and nobody else can connect.
        assert stat.S_IMODE(self.bench.home.stat().st_mode) == 0o700
        listeners = self.bench.listeners["running"]
        assert listeners.found >= for_workers(running.connection)
        assert not listeners.beyond_loopback()

    @tries(Feature.LEVELS)
    def test_the_level_is_read_back_from_the_live_system(self) -> None:
        running, gauge = self.bench.running, self.bench.gauge
        topic = gauge.create_topic(running.connection, running.topic_plan())
        found = running.read_back(gauge.describe(running.connection), [topic])
        assert found.mismatches == ()
        assert found.level == running.level
        assert found.settings

    def test_it_goes_on_at_another_level_where_that_is_one_of_topics(self) -> None:
        running, gauge = self.bench.running, self.bench.gauge
        for level in (*sorted(self.system.levels - {self.bench.level}), self.bench.level):
            request = SystemRequest(level=level, options=self.options)
            if not self.system.level_of_topics:
                with pytest.raises(SystemFailure, match="level_of_topics"):
                    running.take_level(request)
                continue
            running.take_level(request)
            topic = gauge.create_topic(running.connection, running.topic_plan())
            found = running.read_back(gauge.describe(running.connection), [topic])
            assert (running.level, found.level, found.mismatches) == (level, level, ())
            assert_clean(gauge.load(running.connection, running.acks, topic))

    @tries(Feature.DELETION)
    def test_topics_are_created_once_and_deleted(self) -> None:
        running, gauge = self.bench.running, self.bench.gauge
        topic = gauge.create_topic(running.connection, running.topic_plan())
        with pytest.raises(WorkerRefused):
            gauge.create_named(running.connection, running.topic_plan(), topic)
        gauge.worker.delete_topics(running.connection, [topic])
        gauge.create_named(running.connection, running.topic_plan(), topic)
        assert_clean(gauge.load(running.connection, running.acks, topic))

    def test_every_message_is_accounted_for(self) -> None:
        audit = self.bench.gauge.load_new_topic(self.bench.running)
        assert audit["sent"] == MESSAGES
        assert_clean(audit)

    @tries(Feature.KEYS)
    def test_messages_of_a_key_come_in_order(self) -> None:
        running, gauge = self.bench.running, self.bench.gauge
        topic = gauge.create_topic(running.connection, running.topic_plan())
        keyed = [{"id": 0, "topic": topic, "keys": "keyed", "key_count": 10}]
        audit = gauge.load(running.connection, running.acks, topic, producers=keyed)
        assert_clean(audit)
        assert audit["subscriptions"][0]["reordered"] == 0

    @tries(Feature.SUBSCRIPTIONS)
    def test_every_subscription_receives_everything(self) -> None:
        both = [subscription("s-0"), subscription("s-1", consumers=1)]
        assert_clean(self.bench.gauge.load_new_topic(self.bench.running, subscriptions=both), 2)

    @tries(Feature.BACKLOG)
    def test_a_backlog_is_read_from_its_beginning(self) -> None:
        running, gauge = self.bench.running, self.bench.gauge
        topic = gauge.create_topic(running.connection, running.topic_plan())
        gauge.load(running.connection, running.acks, topic, subscriptions=[])
        audit = gauge.load(
            running.connection, running.acks, topic, subscriptions=[subscription(start="earliest")]
        )
        (found,) = audit["subscriptions"]
        # Those of the first load bear the stamp of another run.
        assert (found["unexpected"], found["unique"], found["lost"]) == (MESSAGES, MESSAGES, 0)

    @tries(Feature.PAUSE)
    def test_a_subscription_that_was_paused_goes_on_where_it_stopped(self) -> None:
        running, gauge = self.bench.running, self.bench.gauge
        topic = gauge.create_topic(running.connection, running.topic_plan())
        trial = gauge.begin(running.connection, running.acks, topic, load_s=PAUSED_LOAD_S)
        trial.until(lambda: trial.received() > 0, "messages to arrive")
        trial.client.pause(trial.id, "s-0")
        # What was on its way still arrives, on a busy machine for a while.
        trial.until_still(PAUSE_S)
        before, sent = trial.received(), trial.sent()
        trial.until(lambda: trial.sent() >= sent + PAUSE_S * RATE_MSGS_S, "messages to be sent meanwhile")
        assert trial.received() - before < (trial.sent() - sent) / 2
        trial.client.resume(trial.id, "s-0")
        assert_clean(trial.finish())

    @tries(Feature.LEADERS)
    def test_the_leader_of_a_topic_is_told(self) -> None:
        running, gauge = self.bench.running, self.bench.gauge
        topic = gauge.create_topic(running.connection, running.topic_plan())
        assert_clean(gauge.load(running.connection, running.acks, topic))
        assert running.knows_leaders
        leader = running.leader(topic)
        assert leader is not None
        assert choose(running.parts(), leader)

    @tries(Feature.ATTACHING)
    def test_who_attaches_touches_nothing(self) -> None:
        running = self.bench.running
        connection = running.connection
        options = {
            key: value for key, value in connection["options"].items() if key in self.system.option_keys
        }
        attached = self.system.attach(SystemRequest(connect=tuple(connection["bootstrap"]), options=options))
        assert attached.attached
        assert not attached.processes()
        assert not attached.parts()
        assert_clean(self.bench.gauge.load_new_topic(attached))
        attached.stop()
        attached.wipe()
        assert running.failure() is None
        assert_clean(self.bench.gauge.load_new_topic(running))

    def test_what_is_true_of_it_alone(self) -> None:
        self.further_checks(self.bench.running)

    @tries(Feature.RESTART)
    def test_killed_and_restarted_it_has_lost_nothing(self) -> None:
        self._survives(lambda running: kill_together(running.parts()))

    @tries(Feature.POWER_CUT)
    def test_what_was_fsynced_survives_a_power_cut(self) -> None:
        lacking = powercut.missing()
        if lacking is not None:
            pytest.skip(f"no disks that can lose power: {lacking}")
        assert self.bench.level == "L3", (
            "without an fsync before the acknowledgement there is nothing to keep"
        )
        self._survives(self._cut)

    def _cut(self, running: RunningSystem) -> None:
        disks = self.bench.disks
        assert disks is not None, "the system puts its data where SystemRequest.volume says"
        assert set(disks.names) == {part.name for part in running.parts() if part.data}
        disks.cut_power(running.parts(), seed=1)

    def _survives(self, take_down: Callable[[RunningSystem], None]) -> None:
        """A load goes on while all of the system ends and comes again."""
        try:
            self._outlives(take_down)
        except BaseException:
            self.bench.end_running()  # The next check has another.
            raise

    def _outlives(self, take_down: Callable[[RunningSystem], None]) -> None:
        running, gauge = self.bench.running, self.bench.gauge
        topic = gauge.create_topic(running.connection, running.topic_plan())
        if self.bench.disks is not None:
            self.bench.disks.settle()
        trial = gauge.begin(running.connection, running.acks, topic, load_s=FAULT_LOAD_S)
        trial.until(lambda: trial.acked() > BEFORE_FAULT_S * RATE_MSGS_S, "messages to be acknowledged")
        # What is acknowledged from here on is read only when the system has come again.
        trial.client.pause(trial.id, "s-0")
        paused = trial.acked()
        trial.until(lambda: trial.acked() > paused + BEFORE_FAULT_S * RATE_MSGS_S, "messages to be kept")
        take_down(running)
        assert running.failure() is None, "what was done on purpose is no failure"
        bring_up(running.parts())
        trial.client.resume(trial.id, "s-0")
        trial.until(lambda: trial.sent() >= FAULT_LOAD_S * RATE_MSGS_S, "all messages to be sent")
        assert_nothing_lost(trial.finish())
        assert_clean(gauge.load_new_topic(running))

    def test_nothing_remains_of_it_and_a_crash_is_told(self, tmp_path: Path) -> None:
        running, home = self.bench.running, self.bench.home
        data = [path for part in running.parts() for path in part.data]
        pids = [process.pid for process in running.processes()]
        os.kill(pids[-1], signal.SIGKILL)
        late = wait_until(lambda: None if running.failure() else "the crash to be told", TOLD_WITHIN_S)
        assert late is None, late
        assert re.search(r"was killed by SIGKILL|exited with status", running.failure() or "")
        running.collect_logs(tmp_path)
        assert _files(tmp_path), "its logs are kept"
        running.stop()
        await_gone(pids)
        assert running.failure() is None
        running.stop()
        self.bench.end_running()
        assert home.is_dir()
        assert not [path for path in data if path.exists() and list(path.iterdir())]

    # ------------------------------------------------------------------ another lab, which is killed

    @tries(Feature.TLS)
    def test_clients_are_served_over_tls_alone(self, tmp_path: Path) -> None:
        check_security(self.system, SystemRequest(tls=True))
        security = self.bench.other_lab.told["connection"]["security"]
        assert security["tls"]["ca_pem"]
        self._serves_other_lab()
        stranger = make_certificates(tmp_path / "keys", []).security.request()
        self._refuses_other_lab(None)
        self._refuses_other_lab({**security, "tls": stranger["tls"]})

    @tries(Feature.CREDENTIALS)
    def test_clients_log_in_with_what_was_made_for_the_start(self) -> None:
        check_security(self.system, SystemRequest(tls=True, guarded=True))
        security = self.bench.other_lab.told["connection"]["security"]
        assert security["auth"]["mechanism"] in self.system.mechanisms
        self._serves_other_lab()
        self._refuses_other_lab({"tls": security["tls"]})
        self.strangers_are_refused(self.bench.other_lab.told["connection"])
        self._keeps_to_itself(security["auth"].get("password") or security["auth"]["token"])

    @tries(Feature.PLACES)
    def test_it_listens_for_clients_at_the_address_of_its_place(self) -> None:
        told = self.bench.other_lab.told
        assert self.system.placed
        assert all(one.startswith(f"{ELSEWHERE}:") for one in told["connection"]["bootstrap"])
        # Nothing but what workers must reach is open there.
        assert self.bench.listeners["other"].beyond_loopback() == for_workers(told["connection"])

    def _keeps_to_itself(self, secret: str) -> None:
        """The secret of a start is in files of mode 0600 in directories of mode 0700, and in nothing that is kept or that other users see."""
        lab = self.bench.other_lab
        holding = [path for path in _files(lab.directory) if secret.encode() in path.read_bytes()]
        assert holding
        for path in holding:
            assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (
                0o600,
                0o700,
            )
        assert secret not in json.dumps(lab.told["configuration"])
        assert _files(lab.logs)
        assert not [path for path in _files(lab.logs) if secret.encode() in path.read_bytes()]
        for pid in lab.told["pids"]:
            assert secret not in " ".join(psutil.Process(pid).cmdline())

    def _serves_other_lab(self) -> None:
        told, gauge = self.bench.other_lab.told, self.bench.gauge
        topic = gauge.create_topic(told["connection"], TopicPlan(told["plan"][0], told["plan"][1]))
        assert_clean(gauge.load(told["connection"], told["acks"], topic))

    def _refuses_other_lab(self, security: Mapping[str, Any] | None) -> None:
        connection = dict(self.bench.other_lab.told["connection"])
        del connection["security"]
        if security is not None:
            connection["security"] = security
        with pytest.raises(WorkerRefused):
            self.bench.gauge.create_named(connection, TopicPlan(1, {}), "refused", REFUSED_WITHIN_S)

    def test_nothing_survives_a_lab_that_is_killed(self) -> None:
        lab = self.bench.other_lab
        pids = list(lab.told["pids"])
        assert pids
        lab.kill()
        await_gone(pids)

    # ------------------------------------------------------------------ three nodes

    @tries(Feature.NODES)
    def test_three_nodes_replicate(self) -> None:
        running, gauge = self.bench.three_nodes, self.bench.gauge
        assert (running.nodes, running.failure()) == (3, None)
        assert not self.bench.listeners["nodes"].beyond_loopback()
        topic = gauge.create_topic(running.connection, running.topic_plan())
        found = running.read_back(gauge.describe(running.connection), [topic])
        assert (found.level, found.mismatches) == (min(self.system.levels_of_nodes), ())
        assert_clean(gauge.load(running.connection, running.acks, topic))

    @tries(Feature.NODE_LOSS)
    def test_two_of_three_nodes_go_on_and_lose_nothing(self) -> None:
        running, gauge = self.bench.three_nodes, self.bench.gauge
        topic = gauge.create_topic(running.connection, running.topic_plan())
        trial = gauge.begin(running.connection, running.acks, topic, load_s=FAULT_LOAD_S)
        trial.until(lambda: trial.acked() > BEFORE_FAULT_S * RATE_MSGS_S, "messages to be acknowledged")
        # A node that happens to lead nothing could be lost without a trace.
        node = running.leader(topic) if running.knows_leaders else "3"
        assert node is not None, "a topic that takes messages has a leader"
        lost = [part.process for part in choose(running.parts(), node)]
        for process in lost:
            os.kill(process.pid, signal.SIGKILL)
        # Not before each has ended for who started it: the first thread of a JVM is gone before the rest of it is.
        late = wait_until(
            lambda: (
                None
                if running.failure() and not any(process.running() for process in lost)
                else "the crash to be told"
            ),
            TOLD_WITHIN_S,
        )
        assert late is None, late
        assert running.goes_on()
        trial.until(lambda: trial.sent() >= FAULT_LOAD_S * RATE_MSGS_S, "all messages to be sent")
        audit = trial.finish()
        assert_nothing_lost(audit)
        assert audit["censored"] == 0, "what is left of it acknowledges all that was sent"

    def test_nothing_remains_of_three_nodes(self) -> None:
        if self.system.can(Feature.NODES):
            pids = [process.pid for process in self.bench.three_nodes.processes()]
            self.bench.end_three_nodes()
            await_gone(pids)
