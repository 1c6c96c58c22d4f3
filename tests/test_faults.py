"""Faults as they are written, gaps in acknowledgements, and what doses, stops and cuts amount to: no process involved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from streamgauge.analysis.acks import Acks
from streamgauge.analysis.durability import conclude, finding, needed, slopes, summaries
from streamgauge.model.durability import Cut, Dose, DoseResponse, Slope, Stop
from streamgauge.model.fault import describe, read_faults
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.result import Phase
from streamgauge.model.result_special import Fault, Faults
from streamgauge.report.words import fault_bands
from streamgauge.runner.faults import FaultLeg
from streamgauge.systems.base.parts import Part, choose, on_same_nodes
from streamgauge.systems.nats.server import leader_of
from streamgauge.vocabulary.errors import InputError, SystemFailure, SystemInputError


def test_faults_are_read_in_the_order_of_their_times() -> None:
    faults = read_faults(["restart@20s,kill:1@10s", "fsync-delay=20ms:bookie-2@500ms"])
    assert [describe(fault) for fault in faults] == [
        "fsync-delay=20ms:bookie-2@500ms",
        "kill:1@10s",
        "restart@20s",
    ]
    assert [fault.at_s for fault in faults] == [0.5, 10.0, 20.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kill:1", "is no fault"),
        ("explode:1@3s", "there is no fault 'explode'"),
        ("kill@3s", "of what?"),
        ("restart@3s", "no kill or power-cut or fsync-error before it"),
        ("fsync-delay:1@3s", "needs a time"),
        ("kill=3s:1@3s", "takes no amount"),
        ("kill:1@soon", "soon"),
        ("heal@3s", "no cut-network before it"),
        ("cut-network@3s", "of what?"),
        ("cut-network=1s:1@3s", "takes no amount"),
        ("kill:leader@1s,restart:leader@3s", "leave the target out"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_faults(text)


def part(name: str) -> Part:
    return Part(name, None, lambda: None)  # type: ignore[arg-type]


def test_targets_mean_parts_and_a_network_is_that_of_a_node() -> None:
    parts = [part(name) for name in ("zookeeper", "bookie-1", "bookie-2", "broker-1", "broker-2")]

    def names(found: Sequence[Part]) -> list[str]:
        return [one.name for one in found]

    for target in ("2", "node-2"):
        assert names(choose(parts, target)) == ["bookie-2", "broker-2"]
    assert names(choose(parts, "broker")) == ["broker-1", "broker-2"]
    assert names(on_same_nodes(parts, choose(parts, "bookie-1"))) == ["bookie-1", "broker-1"]
    assert "zookeeper" not in names(on_same_nodes(parts, choose(parts, "all")))
    with pytest.raises(ValueError, match="on no node of its own"):
        on_same_nodes(parts, choose(parts, "zookeeper"))


class Led:
    """What a leg asks of a system, with a leader that moves."""

    name, nodes, knows_leaders = "led", 3, True

    def __init__(self) -> None:
        self.now: str | None = "node-2"

    def parts(self) -> list[Part]:
        return [part(f"node-{number}") for number in (1, 2, 3)]

    def leader(self, topic: str) -> str | None:
        assert topic == "t"
        return self.now


def test_who_leads_is_asked_when_the_fault_is_due() -> None:
    led = Led()
    leader, followers = read_faults("kill:leader@1s,stop:followers@2s")
    leg = FaultLeg(led, [leader, followers])  # type: ignore[arg-type]
    leg._topic = "t"
    assert [one.name for one in leg._now(leader)] == ["node-2"]
    assert [one.name for one in leg._now(followers)] == ["node-1", "node-3"]
    led.now = "node-3"
    assert [one.name for one in leg._now(leader)] == ["node-3"]
    led.now = None
    with pytest.raises(SystemFailure, match="does not say which node leads t"):
        leg._now(leader)
    led.nodes = 1
    with pytest.raises(SystemInputError, match="one node has no followers"):
        FaultLeg(led, [followers])  # type: ignore[arg-type]
    led.knows_leaders = False
    with pytest.raises(SystemInputError, match="does not tell which node leads"):
        FaultLeg(led, [leader])  # type: ignore[arg-type]


def test_the_leader_of_a_stream_is_read_from_the_monitor() -> None:
    def told(**cluster: object) -> dict[str, object]:
        return {"account_details": [{"stream_detail": [{"name": "t", **cluster}]}]}

    assert leader_of(told(cluster={"leader": "node-3"}), "t") == "node-3"
    assert leader_of(told(cluster={"name": "c"}), "t") is None
    assert leader_of(told(), "t") == ""
    assert leader_of(told(), "other") is None
    assert leader_of({}, "t") is None


def test_a_fault_behind_the_measured_phase_is_refused() -> None:
    overrides = Overrides.of(duration="5s", fault=["kill:1@5s"])
    with pytest.raises(InputError, match="the measured phase is over by then"):
        read_workload("1-topic-16-partitions-100b", overrides)


def outage() -> Acks:
    """A thousand a second, nothing from 5.0 s to 7.0 s, all of it at once then."""
    acks = Acks()
    for step in range(1001):
        at_s = step * 0.01
        acked = at_s * 1000 if at_s <= 5.0 or at_s >= 7.0 else 5000
        acks.add(at_s, round(acked))
    return acks


def test_a_gap_and_the_recovery_from_it_are_found() -> None:
    acks = outage()
    assert acks.gap(5.1, 9.0) == pytest.approx((5.0, 7.0))
    begin_s, end_s = acks.gap(8.0, 9.0) or (0.0, 1.0)
    assert end_s - begin_s == pytest.approx(0.01)
    assert acks.rate_msgs_s(1.0, 5.0) == pytest.approx(1000, rel=0.01)
    assert acks.rate_back(7.0, 10.0, 1000.0) == pytest.approx(7.0, abs=0.02)
    assert acks.caught_up(5.1, 10.0, 1000.0, 1.0) == pytest.approx(7.0, abs=0.05)
    assert acks.rate_back(9.8, 10.0, 1000.0) is None


def blocks(
    count: int, waits: set[frozenset[str]] | None = None, needs: int = 0
) -> dict[frozenset[str], bool]:
    """Which sets block when an acknowledgement needs so many of the nodes (or for the sets given)."""
    names = [f"node-{number}" for number in range(1, count + 1)]
    sets = [frozenset(chosen) for size in range(1, count + 1) for chosen in combinations(names, size)]
    if waits is not None:
        return {one: one in waits for one in sets}
    return {one: needs > 0 and len(one) >= count - needs + 1 for one in sets}


@pytest.mark.parametrize("needs", [0, 1, 2, 3])
def test_how_many_nodes_are_needed_follows_from_which_sets_block(needs: int) -> None:
    assert needed(blocks(3, needs=needs), 3) == needs


def test_a_leader_that_syncs_alone_is_told_from_a_quorum() -> None:
    own = {one for one in blocks(3) if "node-2" in one}
    response = DoseResponse(
        slopes=[
            Slope(nodes=sorted(nodes), parts=sorted(nodes), slope=float(waits), waits=waits)
            for nodes, waits in blocks(3, waits=own).items()
        ],
        stops=[
            Stop(nodes=sorted(nodes), parts=sorted(nodes), stopped_s=1, gap_s=1, waits=waits)
            for nodes, waits in blocks(3, needs=3).items()
        ],
    )
    told = conclude(response, 3)
    doses = [Dose(parts=[], delay_ms=0, publish_ms_p10=1.0)]
    led = finding("L1", 3, told.model_copy(update={"leader": "node-2", "doses": doses}), [], [])
    assert (
        "node-2 led: with the syncs of the leader alone slowed the publish p10 grew by 1.00 ms per ms, with those of the "
        "followers alone (node-1, node-3) by 0.00." in led.sentences
    )
    assert told.disks == 1
    assert "its own disk (node-2 leads)" in told.disks_told
    assert told.copies == 3


def doses_of(without_ms: float, *with_ms: tuple[float, float | None]) -> list[Dose]:
    """A round's: latencies without delay, then delays with their latencies, ms; all messages take the same."""
    given = [([], 0.0, without_ms), *((["node-1"], delay_ms, latency_ms) for delay_ms, latency_ms in with_ms)]
    return [
        Dose(
            parts=parts,
            delay_ms=delay_ms,
            publish_ms_p10=latency_ms,
            publish_ms_p50=latency_ms,
            acked_msgs=0 if latency_ms is None else 10,
        )
        for parts, delay_ms, latency_ms in given
    ]


def test_slopes_are_of_the_lowest_decile_on_the_dose() -> None:
    rounds = [doses_of(base, *((delay, base + delay) for delay in (5.0, 10.0, 20.0))) for base in (1.0, 8.0)]
    for dose in rounds[1]:
        dose.publish_ms_p50 = 40.0  # A neighbour makes most messages late, and the first ones no earlier.
    (slope,) = slopes(rounds, {("node-1",): ["node-1"]})
    assert slope.slope == pytest.approx(1.0)
    assert slope.slopes == pytest.approx([1.0, 1.0])
    assert slope.waits


@pytest.mark.parametrize(
    ("rounds", "slope_is", "waits"),
    [
        # A neighbour that comes in one round, or goes in one.
        ([(2.0, 23.0), (2.0, 41.0), (2.0, 22.0)], 1.05, True),
        ([(2.0, 23.0), (27.0, 28.0), (2.0, 22.0)], 1.0, None),
        ([(2.0, 24.0), (2.0, 3.0), (2.0, 3.0)], 0.05, False),
        ([(2.0, 24.0), (2.0, 30.0), (20.0, 21.0)], 1.1, None),
        # Without messages at the delay a round says nothing.
        ([(2.0, 23.0), (2.0, None)], 1.05, True),
    ],
)
def test_rounds_that_contradict_each_other_tell_nothing(
    rounds: list[tuple[float, float | None]], slope_is: float, waits: bool | None
) -> None:
    (slope,) = slopes(
        [doses_of(without_ms, (20.0, with_ms)) for without_ms, with_ms in rounds], {("node-1",): ["node-1"]}
    )
    assert slope.slope == pytest.approx(slope_is)
    assert slope.waits is waits


@pytest.mark.parametrize(
    ("without_ms", "with_ms", "waits"),
    [(2.0, 23.0, True), (4.4, 4.3, False), (42.0, 7.0, False), (31.6, 28.4, None)],
)
def test_doses_tell_only_where_latencies_can(without_ms: float, with_ms: float, waits: bool | None) -> None:
    (slope,) = slopes([doses_of(without_ms, (20.0, with_ms))], {("node-1",): ["node-1"]})
    assert slope.waits is waits
    response = conclude(DoseResponse(slopes=[slope]), 1)
    assert response.disks == {True: 1, False: 0, None: None}[waits]
    told = finding("L3", 1, response, [], [])
    assert told.measured == (None if waits is not False else "L4")
    assert any("was not told by the doses" in one for one in told.sentences) == (waits is None)


def power_cut(number: int, lost: int = 0, **others: object) -> Cut:
    return Cut.model_validate(
        {
            "number": number,
            "kind": "power cut",
            "scope": "all",
            "parts": ["node-1"],
            "at_s": 2.0,
            "serving_s": 2.5,
            "acked": 3000,
            "acked_before": 990,
            "dropped_bytes": 4096,
            "written_bytes": 300_000,
            "lost": lost,
            "balanced": True,
            "window_ms": float(lost) or None,
            **others,
        }
    )


def response_of(disks: int) -> DoseResponse:
    return conclude(
        DoseResponse(slopes=[Slope(nodes=["node-1"], parts=["node-1"], slope=float(disks), waits=disks > 0)]),
        1,
    )


def test_a_level_is_the_weakest_that_the_evidence_allows() -> None:
    kept, lost = summaries([power_cut(1), power_cut(2)]), summaries([power_cut(1), power_cut(2, 40)])
    assert finding("L3", 1, response_of(1), [], kept).measured == "L3"
    assert finding("L3", 1, response_of(0), [], kept).agrees is False
    lossy = finding("L3", 1, response_of(1), [], lost)
    assert (lossy.measured, lossy.agrees) == ("L4", False)
    assert finding("L4", 1, None, [], lost).measured == "L4"
    assert any(
        "less than" in told
        for told in finding("L3", 1, None, [], summaries([power_cut(n) for n in range(10)])).sentences
    )


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"acked_before": 0}, "no message was acknowledged in the 1 s before it"),
        ({"acked_before": None}, "no message was acknowledged"),
        ({"dropped_bytes": 0, "written_bytes": 0}, "nothing had been written to the disks"),
        ({"read_early": 100}, "sent to the reader before: 100 messages"),
    ],
)
def test_a_cut_that_hit_nothing_claims_no_durability(others: dict[str, object], told: str) -> None:
    cut = power_cut(1).model_copy(update=others)
    assert told in (cut.inconclusive or "")
    found = finding("L3", 1, response_of(1), [], summaries([cut]))
    assert (found.measured, found.agrees) == (None, None)
    assert any("Not shown" in sentence for sentence in found.sentences)
    # What was lost was lost all the same.
    assert cut.model_copy(update={"lost": 5}).conclusive


def test_a_few_messages_that_were_read_early_do_not_hide_the_others() -> None:
    assert power_cut(1, read_early=24).conclusive


def test_nothing_pending_on_disks_that_were_written_to_is_conclusive() -> None:
    assert power_cut(1, dropped_bytes=0).conclusive


def test_disks_that_are_waited_for_are_no_level_without_a_cut() -> None:
    assert finding("L3", 1, response_of(1), [], []).measured is None
    assert finding("L4", 1, response_of(0), [], []).measured == "L4"


def test_a_replicated_level_needs_a_cut_of_one_node() -> None:
    response = conclude(
        DoseResponse(
            slopes=[
                Slope(nodes=sorted(nodes), parts=sorted(nodes), slope=float(waits), waits=waits)
                for nodes, waits in blocks(3, needs=2).items()
            ],
            stops=[
                Stop(nodes=sorted(nodes), parts=sorted(nodes), stopped_s=1, gap_s=1, waits=waits)
                for nodes, waits in blocks(3, needs=2).items()
            ],
        ),
        3,
    )
    every, one = [power_cut(n) for n in range(3)], [power_cut(9, scope="one")]
    assert finding("L1", 3, response, [], summaries(every)).measured is None
    assert finding("L1", 3, response, [], summaries(every + one)).measured == "L1"
    assert finding("L1", 3, response, [], summaries([*every, power_cut(9, 7, scope="one")])).measured == "L3"


def test_a_cut_of_which_not_everything_was_read_tells_nothing() -> None:
    (summary,) = summaries([power_cut(1, censored=5), power_cut(2, failure="it did not come back")])
    assert (summary.conclusive, summary.with_loss, summary.loss_probability_max) == (0, 0, None)
    assert finding("L3", 1, None, [], [summary]).measured is None


def test_a_delay_is_drawn_until_another_one_takes_its_place() -> None:
    """Each stroke was drawn to the end, those that end one, too."""
    asked = read_faults(
        "fsync-delay=20ms:1@2s,fsync-delay=0ms:1@3s,fsync-delay=5ms:1@6s,fsync-delay=40ms:2@7s,fsync-delay=10ms:1@8s"
    )
    made = [
        Fault(asked=one, parts=[f"broker-{one.target}"], from_s=one.at_s, done_s=one.at_s) for one in asked
    ]
    found = Faults(faults=made, resolution_s=0.1, unavailable_s=0.0)
    assert [
        (begin, end) for _, begin, end in fault_bands(found, Phase(name="measure", from_s=0.0, until_s=10.0))
    ] == [
        (2.0, 3.0),
        (6.0, 8.0),
        (7.0, 10.0),
        (8.0, 10.0),
    ]
