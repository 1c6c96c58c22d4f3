"""The studies as their documents have them: each assertion's comment says where the document, or a file of its authors, says so."""

from __future__ import annotations

import itertools
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from streamgauge.inference.checks import bounds, is_directional, margin_of_test
from streamgauge.model.checked_study import Study, parse_study, read_study
from streamgauge.model.scaling import Machine
from streamgauge.model.study_file import CheckFile
from streamgauge.model.study_plan import PlannedCell, StudyPlan
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.study_told import told
from streamgauge.model.study_trust import refuse_untrusted_study
from streamgauge.model.trust import NOBODY
from streamgauge.store import plan_file
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError
from test_study_model import TEXT

LAPTOP = Machine(cores=2, memory_bytes=24 << 30, disk_write_mb_s=1500.0)
KESQUE, CONFLUENT, NATIVE_2020, NATIVE_2022 = (
    "kesque-2019",
    "confluent-2020",
    "streamnative-2020",
    "streamnative-2022",
)
DOCUMENTED = (KESQUE, CONFLUENT, NATIVE_2020, NATIVE_2022)
TUNED = {
    "num.replica.fetchers": 8,
    "message.max.bytes": 10485760,
    "replica.fetch.max.bytes": 10485760,
    "num.network.threads": 8,
}


@cache
def study(name: str) -> Study:
    return read_study(name, systems())


@cache
def plan(name: str, scale: str = "full") -> StudyPlan:
    return plan_study(study(name), Wishes(scale=scale, seed=1), LAPTOP)  # type: ignore[arg-type]


def cells(name: str, pattern: str = "*", scale: str = "full") -> list[PlannedCell]:
    wanted = {cell.name for cell in study(name).matching([pattern])}
    found = [cell for cell in plan(name, scale).cells if cell.cell in wanted]
    assert found, pattern
    return found


def workload(name: str, cell: str, scale: str = "full") -> dict[str, Any]:
    return plan(name, scale).cell(cell).workload


def claimed(name: str, figure: str, *asked: str) -> list[CheckFile]:
    """The tests of the study's claims on a figure of these cells, in their order."""
    every = [test for claim in study(name).written.claims for test in claim.tests]
    return [test for test in every if test.figure == figure and test.cells == list(asked)]


# ---------------------------------------------------------------------- sources


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_cell_system_claim_slip_and_printed_figure_says_what_it_rests_on(name: str) -> None:
    written = study(name).written
    assert [one.claim for one in written.claims if not one.source] == []
    assert [one.slip for one in written.slips if not one.source] == []
    assert [key for key, one in written.systems.items() if not one.source] == []
    assert written.workload["source"]
    for cell in told(study(name), "full").cells:
        kinds = [source.partition(": ")[0] for source in cell.sources]
        assert kinds == ["system", "workload", *(["figures"] if cell.published else [])], cell.name


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_claim_holds_of_the_figures_that_its_study_prints(name: str) -> None:
    """A claim that the study's own numbers refute is tested the wrong way round, or asks for too much; one whose margin they lie within calls the study's own
    finding no difference that matters."""
    checked = 0
    for claim in study(name).written.claims:
        for test in claim.tests:
            figures = [test.figure, test.of or test.figure, *[test.figure] * (len(test.cells) - 2)]
            printed = [
                study(name).cell(cell).published.get(figure)
                for cell, figure in zip(test.cells, figures, strict=False)
            ]
            if len(printed) < 2 or not all(isinstance(one, (int, float)) for one in printed):
                continue
            values = [float(one) for one in printed if one is not None]
            low, high = bounds(test)
            ratios = [first / second for first, second in itertools.pairwise(values)]
            if test.rising or test.falling:
                low, high = (0.0, 1.0) if test.rising else (1.0, math.inf)
            assert all(low < ratio < high for ratio in ratios), (claim.claim, ratios)
            if test.rising or test.falling or is_directional(test):
                matters = math.log(margin_of_test(test))
                assert all(abs(math.log(ratio)) > matters for ratio in ratios), (claim.claim, ratios)
            checked += 1
    assert checked >= 4


def test_a_source_is_no_key_of_the_workload_and_no_figure() -> None:
    text = TEXT.replace("duration: 15m}", "duration: 15m, source: section 2}")
    text = text.replace("{publish_ms: {p50: 2, p99: 4}}", "{publish_ms: {p50: 2, p99: 4}, source: table 1}")
    text = text.replace('title: "Log, sync",', 'title: "Log, sync", source: table 2,')
    text = text.replace(
        "cells:\n  - cell:",
        "slips: [one, {slip: two, source: table 3}]\ncells:\n  - source: table 4\n    cell:",
    )
    found = parse_study(text, "small.yaml", systems())
    assert "source" not in found.cell("log-sync-1").workload
    assert found.cell("log-sync-1").published == {"publish_ms.p50": 2, "publish_ms.p99": 4}
    page = told(found, "quick")
    assert page.cell("log-sync-1").sources == ["system: table 2", "workload: table 4", "figures: table 1"]
    assert page.cell("log-async-1").sources == ["workload: table 4"]
    assert page.slips == ["one", "two (table 3)"]


def test_a_plan_of_before_there_were_sources_keeps_its_seal() -> None:
    plain = plan_study(parse_study(TEXT, "small.yaml", systems()), Wishes(scale="quick", seed=7), LAPTOP)
    as_it_was = json.loads(plan_file._text(plain))
    assert all("sources" not in cell for cell in as_it_was["told"]["cells"])
    assert all("source" not in claim for claim in as_it_was["told"]["claims"])
    assert "sources" in plan_file._text(plan(KESQUE)), "and what is said is sealed"


# ---------------------------------------------------------------------- what a scale sets of a cell


def own(text: str) -> str:
    return TEXT.replace("repeats: 3, restart: block", f"repeats: 3, cells: {{{text}}}, restart: block")


def test_a_scale_sets_keys_of_a_workload_and_says_so() -> None:
    text = own('"*-1": {workload: {batch: {buffer: 1MiB}}}, log-async-1: {workload: {rate: max}}').replace(
        "batch: {linger: 10ms}", "batch: {bytes: 64KiB, buffer: 8MiB}"
    )
    found = plan_study(parse_study(text, "small.yaml", systems()), Wishes(scale="quick", seed=7), LAPTOP)
    assert found.cell("log-async-1").workload["batch"] == {"bytes": "64KiB", "buffer": "1MiB"}
    assert found.cell("log-async-1").workload["rate"] == "max"
    assert "rate max instead of 200k" in found.cell("log-async-1").scaled
    assert "batch.buffer 1MiB instead of 8MiB" in found.cell("log-sync-1").scaled
    assert found.cell("log-async-100").workload["batch"]["buffer"] == "8MiB"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"*-1": {workload: {rat: 1}}', "unknown key 'rat' of a workload; did you mean 'rate'?"),
        ('"*-1": {options: {nothing: 1}}', "unknown option 'nothing' of gauge-log"),
        ('"*-1": {worklod: {rate: 1}}', "unknown key 'worklod'"),
        (
            '"*-1": {workload: {batch: {bufer: 1MiB}}}',
            "cell 'log-sync-1': unknown key 'bufer'; did you mean 'buffer'?",
        ),
    ],
)
def test_what_a_scale_cannot_set_is_told_at_its_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse_study(own(text), "small.yaml", systems())
    assert said in str(error.value)
    assert "small.yaml:19: " in str(error.value)


@pytest.mark.parametrize("figure", ["sustained_mb_s", "catch_up_publish_ms.p99"])
def test_a_page_over_time_of_what_is_no_series_is_told_at_its_line(figure: str) -> None:
    text = f'{TEXT}  - {{title: "Over time", over_time: {figure}, cells: ["*"]}}\n'
    with pytest.raises(InputError, match=f"small.yaml:25: over_time: '{figure}' is no series"):
        parse_study(text, "small.yaml", systems())
    parse_study(text, "small.yaml", None)


def test_options_of_a_scale_are_trusted_no_more_than_those_of_a_system() -> None:
    text = own('"*-1": {options: {jvm_flags: ["-javaagent:x.jar"]}}').replace("gauge-log", "kafka")
    with pytest.raises(InputError, match="jvm_flags"):
        refuse_untrusted_study(parse_study(text, "small.yaml", systems()), NOBODY, systems())


def test_what_comes_back_every_minute_is_not_asked_of_seconds() -> None:
    """A claim that a scale cannot show is no question to it, and costs the others nothing."""
    spikes = next(
        claim.tests
        for claim in told(study(KESQUE), "quick").claims
        if any(test.figure.startswith("spikes") for test in claim.tests)
    )
    assert "it takes trials of 1m at least, and at scale quick they have 3s" in plan(KESQUE, "quick").bars(
        spikes
    )
    assert plan(KESQUE, "laptop").bars(spikes) == ""


@pytest.mark.parametrize(
    ("name", "budget_s", "count"),
    [(KESQUE, 1200, 12), (CONFLUENT, 1500, 9), (NATIVE_2020, 1320, 6), (NATIVE_2022, 1320, 6)],
)
def test_quick_scales_hold_three_rounds_within_their_budget(name: str, budget_s: int, count: int) -> None:
    found = plan(name, "quick")
    assert found.rounds == 3
    assert len([cell for cell in found.cells if not cell.heats]) == count
    assert found.budget_s == budget_s
    assert found.estimate_s() < budget_s
    # The generator shares the machine with the system: no buffers of gigabytes, no drains of minutes.
    for cell in found.cells:
        assert "GiB" not in str(cell.workload.get("batch"))
        assert cell.workload.get("drain", "30s") == "30s"


@pytest.mark.parametrize(
    ("name", "starts"), [(KESQUE, 3), (CONFLUENT, 3), (NATIVE_2020, 2), (NATIVE_2022, 3)]
)
def test_a_round_starts_each_system_once_whose_levels_are_those_of_its_topics(name: str, starts: int) -> None:
    """Kafka with and without flush is one cluster with other topics; Pulsar's journal belongs to its bookies."""
    found = plan(name, "quick")
    blocks: dict[int, set[str]] = {}
    for trial in found.trials:
        blocks.setdefault(trial.block, set()).add(found.cell(trial.cell).kind)
    assert len(blocks) == 3 * starts
    assert all(len(kinds) == 1 for kinds in blocks.values())


# ---------------------------------------------------------------------- kesque-2019


def test_kesque_turned_off_the_fsync_and_nothing_else() -> None:
    # "setting journalSyncData=false"; apache/bookkeeper f79c760: until March 2020 bookies flushed after each group all the same.
    for cell in cells(KESQUE, "pulsar-async-*"):
        assert cell.options == {
            "journal": "async_journal",
            "bookie": {"journalPageCacheFlushIntervalMSec": 1},
        }


def test_kesque_says_from_which_percentile_on_latency_rises() -> None:
    # "Most of the Kafka tests show elevated latency at the 99.9th percentile. In the few cases where Pulsar [...] at the 99.99th".
    for cell in ("kafka-async-1", "kafka-async-6", "kafka-async-16", "kafka-sync-6"):
        assert claimed(KESQUE, "publish_ms.p99_9", cell, cell)[0].above == 5
    # Test 12: 123.801 over 23.404 ms.
    assert claimed(KESQUE, "publish_ms.p99_9", "kafka-sync-16", "kafka-sync-16")[0].above == 3
    assert claimed(KESQUE, "publish_ms.p99_9", "pulsar-sync-1", "pulsar-sync-1")[0].below == 1.5
    assert claimed(KESQUE, "publish_ms.p99_99", "pulsar-sync-1", "pulsar-sync-1")[0].above == 5
    # "2.72 ms of latency and Kafka is clocking in at 18.454 ms, which is six times higher": means.
    assert claimed(KESQUE, "publish_ms.mean", "kafka-sync-16", "pulsar-sync-16")[0].above == 3


def test_kesque_compares_averages_of_kafka_and_pulsar_at_each_number_of_partitions() -> None:
    # "Pulsar is lower for the six6- and 16-partition tests"; "Kafka actually has an advantage in the one-partition case (7.129 vs 9.052 ms)".
    def asks(figure: str, *asked: str) -> tuple[float | None, float | None]:
        (found,) = claimed(KESQUE, figure, *asked)
        return found.above, found.below

    assert asks("publish_ms.mean", "kafka-async-1", "pulsar-async-1") == (None, 1)
    assert asks("publish_ms.mean", "pulsar-async-16", "kafka-async-16") == (None, 0.5)
    assert asks("end_to_end_ms.mean", "kafka-sync-1", "pulsar-sync-1") == (None, 1)
    assert asks("end_to_end_ms.mean", "kafka-sync-16", "pulsar-sync-16") == (1, None)


def test_kesques_kafka_took_partitions_message_by_message() -> None:
    # Kafka 2.3; that a batch stays with one partition came with 2.4 (KIP-480).
    assert {cell.workload["keys"] for cell in cells(KESQUE, "kafka-*")} == {"round_robin"}
    assert not any("keys" in cell.workload for cell in cells(KESQUE, "pulsar-*"))


def test_kesque_looks_for_the_bump_at_full_scale_with_flush_and_without() -> None:
    # "constant regardless of the end-to-end latency [...] (9 to 11, 3 to 5) in both cases"; without flush it "still exists".
    assert {cell.cell for cell in cells(KESQUE, "pulsar-*-long")} == {
        "pulsar-sync-1-long",
        "pulsar-sync-16-long",
        "pulsar-async-1-long",
    }
    assert plan(KESQUE).left_out == {}


# ---------------------------------------------------------------------- confluent-2020


def test_rabbitmqs_producer_does_not_wait_for_confirms() -> None:
    # driver-rabbitmq/.../RabbitMqBenchmarkProducer.java at 59266f0: publishes, and takes confirms as they come.
    for cell in cells(CONFLUENT, "*rabbitmq*"):
        assert (cell.workload["batch"]["in_flight"], cell.workload["batch"]["buffer"]) == (1000, "1GiB")
    here = workload(CONFLUENT, "overload-rabbitmq-mirrored", "quick")["batch"]
    assert (here["in_flight"], here["buffer"]) == (5, "64MiB"), (
        "a closed loop of a second, not of half a minute"
    )


def test_batches_of_all_sizes_are_claimed() -> None:
    # "(1 KB and 10 KB) is ~3-5x higher"; "(100 KB and 1 MB) [...] comparable".
    for size, above, between in (
        (1024, 2, None),
        (10240, 2, None),
        (102400, None, [0.8, 1.25]),
        (1048576, None, [0.8, 1.25]),
    ):
        (found,) = claimed(CONFLUENT, "publish_rate_mb_s", f"batch-{size}-async", f"batch-{size}-sync")
        assert (found.above, found.between) == (above, between)


@pytest.mark.parametrize(
    ("name", "partition_bytes", "heap"),
    # Heaps: the authors' kafka.service at 0fb69e5 and at 67523f7; that of 2020 at Confluent is not told.
    [
        (CONFLUENT, 10 << 20, {}),
        (NATIVE_2020, 128 << 10, {"heap": "6g"}),
        (NATIVE_2022, 10 << 20, {"heap": "16g"}),
    ],
)
def test_kafka_has_the_threads_and_fetches_of_the_study_at_full_scale(
    name: str, partition_bytes: int, heap: dict[str, str]
) -> None:
    # "We also tuned the Kafka consumer fetch size and replication threads"; the authors' server.properties at 0fb69e5, and driver-kafka/*.yaml of each.
    client = {"max.partition.fetch.bytes": partition_bytes, "fetch.max.bytes": 50 << 20}
    for cell in plan(name).cells:
        if cell.kind == "kafka":
            assert cell.options == {"broker": TUNED, "client": client, **heap}
    broker = {"broker": TUNED} if name == NATIVE_2022 else {}
    assert all(cell.options == broker for cell in plan(name, "quick").cells if cell.kind == "kafka")


def deployed(path: str) -> dict[str, Any]:
    """A file of deploy/ansible."""
    found = YAML(typ="safe").load(Path(__file__).parent.parent / "deploy" / "ansible" / path)
    return dict(found)


def test_brokers_that_are_deployed_replicate_as_in_the_studies() -> None:
    assert deployed("roles/kafka/defaults/main.yaml")["kafka_settings"] == TUNED


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        (CONFLUENT, "latency-pulsar-sync"),
        (NATIVE_2020, "pulsar-l1-100"),
        (NATIVE_2022, "latency-pulsar-journal"),
    ],
)
def test_pulsar_that_is_deployed_has_the_memory_of_the_study_at_full_scale(name: str, cell: str) -> None:
    told, memory = deployed(f"studies/{name}.yaml"), plan(name).cell(cell).options["memory"]
    assert {memory["bookie"], memory["broker"]} == {told["pulsar_heap"]}
    assert {memory["bookie_direct"], memory["broker_direct"]} == {told["pulsar_direct"]}


@pytest.mark.parametrize(
    ("name", "cell"), [(NATIVE_2020, "pulsar-l1-100"), (NATIVE_2022, "latency-pulsar-journal")]
)
def test_bookies_and_brokers_that_are_deployed_have_the_settings_of_full_scale(name: str, cell: str) -> None:
    told, options = deployed(f"studies/{name}.yaml"), plan(name).cell(cell).options
    for kind in ("bookie", "broker"):
        for key, value in options.get(kind, {}).items():
            assert told[f"pulsar_{kind}"][key] == str(value), key


@pytest.mark.parametrize("name", ["streamnative-2020-bypass", "streamnative-2022-no-journal"])
def test_a_journal_that_is_bypassed_leaves_both_disks_to_the_ledgers(name: str) -> None:
    # deploy-bypass-journal/pulsar/templates/bookkeeper.conf at 0fb69e5; bookkeeper-skip-journal.conf at 0209bd1.
    told = deployed(f"studies/{name}.yaml")
    assert told["pulsar_bookie"]["journalWriteData"] == "false"
    assert all("ledgers" in disk["roles"] for disk in told["broker_disks"])
    assert told["pulsar_ledgers"] == 2


def test_pulsars_memory_is_that_of_the_studies_at_full_scale() -> None:
    # "12 GB each"; "20% of available direct memory of 12 GB"; "dbStorage_readAheadCacheMaxSizeMb=1024".
    options = plan(CONFLUENT).cell("latency-pulsar-sync").options
    assert options["memory"] == dict.fromkeys(("bookie", "bookie_direct", "broker", "broker_direct"), "12g")
    assert options["bookie"]["dbStorage_readAheadCacheMaxSizeMb"] == 1024
    # The authors' deploy/deploy_pulsar.yaml at 0fb69e5: max_heap_memory 8g, max_direct_memory 16g.
    memory = plan(NATIVE_2020).cell("pulsar-l1-100").options["memory"]
    assert memory == {"bookie": "8g", "bookie_direct": "16g", "broker": "8g", "broker_direct": "16g"}
    here = plan(NATIVE_2020, "quick").cell("pulsar-l4-100").options["memory"]
    assert here == {"broker_direct": "1g"}, "what 10,000 partitions take, and the rest as the lab has it"


@pytest.mark.parametrize("name", [CONFLUENT, NATIVE_2020, NATIVE_2022])
def test_kafka_has_five_requests_on_the_way_and_pulsar_no_bound(name: str) -> None:
    for cell in plan(name).cells:
        batch = cell.workload["batch"]
        if cell.kind == "pulsar":
            # "both the per-partition and global limits to infinity"; pendingQueueSize: 5000000; pendingQueueSize: 0.
            assert (batch["in_flight"], batch["buffer"]) == (1000, "4GiB")
        if cell.kind == "kafka":
            # "the producer default limit of 5 maximum outstanding batches"; its buffer's default is 32 MiB a producer.
            producers = cell.workload.get("producersPerTopic", 1)
            assert (batch["in_flight"], batch["buffer"]) == (5, f"{32 * producers}MiB")


def test_rabbitmq_has_a_queue_per_core_and_takes_routing_keys_in_turn() -> None:
    # "replicating 24 queues across three nodes"; "all producers generating messages with all routing keys (round robin)".
    for cell in cells(CONFLUENT, "*rabbitmq*"):
        assert (cell.workload["partitionsPerTopic"], cell.workload["keys"]) == (24, "round_robin")
    assert workload(CONFLUENT, "latency-rabbitmq-mirrored", "quick")["partitionsPerTopic"] == 8


def test_rabbitmq_is_overloaded_at_the_studys_rate() -> None:
    # "not able to drive a throughput higher than 38K messages/s [...] almost two seconds"; "30K messages/s".
    assert workload(CONFLUENT, "overload-rabbitmq-mirrored")["rate"] == "38k"
    assert workload(CONFLUENT, "latency-rabbitmq-mirrored")["rate"] == "30k"
    # A rate that is scaled down would be no overload.
    assert workload(CONFLUENT, "overload-rabbitmq-mirrored", "quick")["rate"] == "max"
    # "200K messages/s or 200MB/s"
    assert workload(CONFLUENT, "latency-kafka-async")["rate"] == "200k"


def test_rabbitmq_without_mirroring_has_its_latencies() -> None:
    # "lower latencies at higher throughputs better when replication is disabled [...] (100K messages/s)".
    assert [cell.workload["rate"] for cell in cells(CONFLUENT, "latency-rabbitmq-classic-*")] == [
        "30k",
        "50k",
        "100k",
    ]
    assert claimed(
        CONFLUENT, "end_to_end_ms.p99", "latency-rabbitmq-classic-100k", "overload-rabbitmq-mirrored"
    )
    assert any(
        "latency-rabbitmq-classic-*" in page.cells and page.percentiles
        for page in study(CONFLUENT).written.pages
    )


def test_the_ladder_is_of_all_systems_and_pulsar_batches_for_50_ms() -> None:
    # "10K, 50K, 100K, 200K, 500K, and 1 million [...] for different configurations"; "batchingMaxPublishDelayMs=50".
    assert len(cells(CONFLUENT, "ladder-*")) == 4 * 6
    assert {cell.workload["batch"]["linger"] for cell in cells(CONFLUENT, "ladder-pulsar-*")} == {"50ms"}
    assert {cell.workload["batch"]["linger"] for cell in cells(CONFLUENT, "ladder-kafka-*")} == {"10ms"}


def test_pulsar_without_fsync_flushes_as_in_confluents_study() -> None:
    # streamnative-2020: "from 1 to 1000"; "large latencies and instability"; "will not affect the final outcomes".
    for cell in cells(CONFLUENT, "*-pulsar-async"):
        assert cell.options["bookie"]["journalPageCacheFlushIntervalMSec"] == 1
    assert (
        claimed(CONFLUENT, "end_to_end_ms.p99", "latency-pulsar-async", "latency-pulsar-sync")[0].above == 1
    )
    assert claimed(CONFLUENT, "sustained_mb_s", "peak-pulsar-async", "peak-pulsar-sync")[0].below == 1.25
    for cell in cells(NATIVE_2020, "pulsar-l2-*"):
        assert "journalPageCacheFlushIntervalMSec" not in cell.options["bookie"], (
            "its own is the second of async_journal"
        )


def test_confluents_claims_on_fsync_are_there() -> None:
    # "quite close to the default configuration"; "Pulsar (blue line) fared better on the higher-tail percentiles".
    assert claimed(CONFLUENT, "sustained_mb_s", "peak-kafka-sync", "peak-kafka-async")[0].between == [
        0.8,
        1.25,
    ]
    assert (
        claimed(CONFLUENT, "end_to_end_ms.p99_9", "latency-kafka-sync", "latency-pulsar-sync")[0].above == 1
    )


# ---------------------------------------------------------------------- streamnative-2020


def test_600_mb_s_are_pulsars_with_its_journal_bypassed() -> None:
    # Results of the authors at 5e1cbd4: 600,000 msg/s ("bypass-journal"), 300,000 msg/s ("nosync").
    found = study(NATIVE_2020)
    for partitions in (100, 2000):
        assert found.cell(f"max-pulsar-bypass-{partitions}-2p").published["sustained_mb_s"] == 605
        assert found.cell(f"max-pulsar-l2-{partitions}-2p").published["sustained_mb_s"] == 300
        assert (
            plan(NATIVE_2020).cell(f"max-pulsar-bypass-{partitions}-2p").options["journal"] == "async_bypass"
        )
    assert claimed(NATIVE_2020, "sustained_mb_s", "max-pulsar-bypass-100-2p", "max-kafka-l2-100-2p")
    assert claimed(NATIVE_2020, "sustained_mb_s", "max-pulsar-bypass-2000-2p", "max-pulsar-bypass-100-2p")


def test_latency_is_that_of_two_producers_and_two_consumers() -> None:
    # The authors' workloads: "2 producer / 2 consumer"; "assigned 2 consumers to each subscription".
    for pattern in ("*-100", "*-10000", "*-100-10subs"):
        for cell in cells(NATIVE_2020, pattern):
            asked = cell.workload
            assert (asked["producersPerTopic"], asked["consumerPerSubscription"]) == (2, 2)
            assert asked["duration"] == "3m"
    # "one of the two consumers began processing tailing-reads"
    assert workload(NATIVE_2020, "mixed-kafka-l1")["consumerPerSubscription"] == 1


def test_the_journals_and_acknowledgements_of_the_study_are_all_there() -> None:
    # Mixed workload #1: "enabled Pulsar's new journal bypassing feature"; catch-up: "varied the number of acknowledgements".
    names = {cell.name for cell in study(NATIVE_2020).cells}
    assert {
        "mixed-pulsar-bypass",
        "mixed-pulsar-bypass-1ack",
        "catch-up-pulsar-bypass-1ack",
        "max-pulsar-bypass-1-1p",
        "catch-up-pulsar-l3",
        "catch-up-kafka-l4",
        "max-pulsar-l3-100-2p",
        "max-kafka-l4-100-2p",
    } <= names
    # Maximum throughput #2: "the same durability guarantees (acks = 2)": L3 and L4 were not tested at 2,000 partitions.
    assert not {
        name for name in names if name.startswith("max-") and ("l3-2000" in name or "l4-2000" in name)
    }


def test_batches_are_of_1_ms_and_the_texts_10_ms_are_a_slip() -> None:
    # The authors' drivers and results are named "batched-1ms-1mb".
    assert {cell.workload["batch"]["linger"] for cell in cells(NATIVE_2020)} == {"1ms"}
    assert any("at most 10 ms" in slip.slip for slip in study(NATIVE_2020).written.slips)


@pytest.mark.parametrize(
    ("figure", "asked"),
    [
        # "five times lower under sync replication durability (ack-2)"
        ("publish_ms.p99", ("kafka-l1-100", "pulsar-l1-100")),
        # "160 times lower"; "270 times higher"
        ("publish_ms.p99", ("kafka-l1-100-10subs", "pulsar-l1-100-10subs")),
        ("publish_ms.p99", ("kafka-l2-100-10subs", "pulsar-l2-100-10subs")),
        # Table 1-4: 2091.31 and 1014.95 ms.
        ("catch_up_publish_ms.p99", ("mixed-kafka-l1", "mixed-pulsar-l1")),
        ("catch_up_publish_ms.p99", ("mixed-kafka-l2", "mixed-pulsar-l2")),
        # "increased the number of producers to four, Kafka achieved a throughput of ~600 MB/s"
        ("sustained_mb_s", ("max-kafka-l2-2000-4p", "max-kafka-l2-2000-2p")),
        # "Kafka was able to achieve ~420 MB/s with 100 partitions"
        ("sustained_mb_s", ("max-kafka-l1-100-2p", "max-pulsar-l1-100-2p")),
    ],
)
def test_claims_on_l1_and_l2_are_there_and_judged_on_three_nodes_alone(
    figure: str, asked: tuple[str, str]
) -> None:
    assert (claimed(NATIVE_2020, figure, *asked)[0].above or 0) > 1
    assert {plan(NATIVE_2020).cell(cell).nodes for cell in asked} == {3}
    for scale in ("laptop", "quick"):
        assert set(asked) & set(plan(NATIVE_2020, scale).left_out)


def test_what_catching_up_may_cost_pulsar_is_what_is_printed() -> None:
    # 10.44 ms in table 1-4 against 4.21 ms in table 2-15: 2.48 times.
    (found,) = claimed(NATIVE_2020, "catch_up_publish_ms.p99", "mixed-pulsar-l4", "mixed-pulsar-l4")
    assert found.below is not None
    assert found.below > 10.44 / 4.21


def test_late_messages_are_waited_for_where_200_s_are_printed() -> None:
    # Table 1-3: 200793 ms.
    assert {cell.workload["drain"] for cell in cells(NATIVE_2020, "*-*-*000")} == {"10m"}


def test_the_slips_of_the_study_are_listed() -> None:
    said = " ".join(slip.slip for slip in study(NATIVE_2020).written.slips)
    for words in ("420", "about 500", "34 and 35", "37 and 38", "13 seconds", "1.6 s", "280,000"):
        assert words in said


def test_each_figure_and_table_has_its_page_by_number() -> None:
    told_of = " ".join(page.title for page in study(NATIVE_2020).written.pages)
    numbers = set()
    for page in study(NATIVE_2020).written.pages:
        text = (
            f"{page.title} {page.note or ''}".replace("figures 22 and 23", "22 23")
            .replace(",", " ")
            .replace(":", " ")
        )
        words = text.split()
        for at, word in enumerate(words):
            if word.isdigit():
                numbers.add(int(word))
                if words[at + 1 : at + 2] == ["to"] and words[at + 2].isdigit():
                    numbers |= set(range(int(word), int(words[at + 2]) + 1))
    assert set(range(1, 39)) <= numbers
    for table in (
        "1-1",
        "1-2",
        "1-3",
        "1-4",
        "2-2",
        "2-3",
        "2-5",
        "2-7",
        "2-8",
        "2-9",
        "2-10",
        "2-12",
        "2-13",
        "2-14",
    ):
        assert table in told_of, table


# ---------------------------------------------------------------------- streamnative-2022


def test_the_results_of_2022_are_in() -> None:
    printed = {cell.name: cell.published for cell in study(NATIVE_2022).cells}
    # "700 MB/s and 580 MB/s, respectively, [...] compared to Kafka's 280 MB/s"; "1600", "1087", "800".
    sustained = {
        name: figures.get("sustained_mb_s") for name, figures in printed.items() if name.startswith("max-")
    }
    assert sustained == {
        "max-1-pulsar-no-journal": 700,
        "max-1-pulsar-journal": 580,
        "max-1-kafka": 280,
        "max-100-pulsar-no-journal": 1600,
        "max-100-pulsar-journal": 800,
        "max-100-kafka": 1087,
    }
    # "1.58 milliseconds latency at the 99 percentile", "7.89 milliseconds", "3.46 milliseconds", "54.56 ms" at 99.9%.
    assert printed["latency-pulsar-no-journal"] == {"publish_ms.p99": 1.58}
    assert printed["latency-pulsar-journal"] == {"publish_ms.p99": 7.89}
    assert {name: printed["latency-kafka"][f"publish_ms.{name}"] for name in ("p99", "p99_9")} == {
        "p99": 3.46,
        "p99_9": 54.56,
    }
    # "can only achieve 2.0 GB/s"; "99% latencies up to ~700 milliseconds"; which Pulsar reads 3.2 GB/s is not said.
    assert printed["catch-up-kafka"] == {"catch_up_max_mb_s": 2000, "catch_up_publish_ms.p99": 700}
    assert "3,200" in str(printed["catch-up-pulsar-journal"]["catch_up_max_mb_s"])


def test_2022_claims_each_percentile_and_each_pulsar_by_itself() -> None:
    def asks(figure: str, *asked: str) -> tuple[float | None, float | None]:
        (found,) = claimed(NATIVE_2022, figure, *asked)
        return found.above, found.below

    without, with_it, kafka = "latency-pulsar-no-journal", "latency-pulsar-journal", "latency-kafka"
    assert asks("publish_ms.p99", without, kafka) == (None, 1)
    # 3.46 against 7.89 ms: with its journal Pulsar is the slower one at p99.
    assert asks("publish_ms.p99", kafka, with_it) == (None, 1)
    assert claimed(NATIVE_2022, "publish_ms.p99", with_it, kafka) == []
    # "at 99.9% and above, Pulsar has lower latency than Kafka for both"
    assert asks("publish_ms.p99_9", without, kafka) == (None, 1)
    assert asks("publish_ms.p99_9", with_it, kafka) == (None, 1)
    # "100x lower than Kafka at P99.99"
    assert asks("publish_ms.p99_99", kafka, without) == (10, None)
    assert asks("publish_ms.p99_99", with_it, kafka) == (None, 1)
    # 800 against 1087 MB/s.
    assert asks("sustained_mb_s", "max-100-pulsar-journal", "max-100-kafka") == (None, 1)
    # "the producers are heavily impacted, with 99% latencies up to ~700 milliseconds"
    assert asks("catch_up_publish_ms.p99", "catch-up-kafka", "catch-up-kafka") == (3, None)
    assert asks("catch_up_publish_ms.p99", "catch-up-kafka", "catch-up-pulsar-journal") == (10, None)


def test_2022_batches_by_system_and_test() -> None:
    # openmessaging/benchmark: kafka-throughput.yaml at 6daf269, kafka-latency.yaml at 421ca79, pulsar.yaml at 752dcd8.
    for cell in cells(NATIVE_2022):
        large = cell.kind == "kafka" and cell.cell.startswith("max-")
        batch = cell.workload["batch"]
        assert (batch["bytes"], batch["linger"]) == ("1MiB" if large else "128KiB", "1ms"), cell.cell


def test_2022_has_a_page_per_figure() -> None:
    titles = [page.title for page in study(NATIVE_2022).written.pages]
    for figure in ("Figure 2:", "Figure 3:", "Figure 4:", "Figure 5a:", "Figure 5b:", "Figure 5c:"):
        assert any(title.startswith(figure) for title in titles), figure


def test_the_page_of_figures_held_against_the_documents_names_cells_that_there_are() -> None:
    page = (Path(__file__).parent.parent / "docs" / "studies-held-against-documents.md").read_text("utf-8")
    names = {name: {cell.name for cell in study(name).cells} for name in DOCUMENTED}
    for section in page.split("\n## ")[1:]:
        name = section.partition("\n")[0].strip()
        if name not in names:
            continue
        for row in [line for line in section.splitlines() if line.startswith("| ")][1:]:
            for pattern in row.split("|")[2].replace("`", "").split(","):
                if pattern.strip() not in ("", "none", "cell", "all"):
                    assert study(name).matching([pattern.strip()]), (name, pattern)


def test_a_cluster_is_not_heated_with_thousands_of_partitions() -> None:
    connected = Wishes(scale="full", seed=1, connect={"kafka": ("a:1",), "pulsar": ("b:1",)})
    found = plan_study(study(NATIVE_2020), connected, LAPTOP)
    heating = [cell for cell in found.cells if cell.heats]
    assert {cell.workload.get("partitionsPerTopic", 1) for cell in heating} == {100}
