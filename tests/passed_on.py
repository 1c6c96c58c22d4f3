"""Real runs that are kept as `streamgauge submit` packs them (tests/data/packed), and what a forger would do with them.

Each of `FORGERIES` changes an unpacked run, so that the result looks better; where figures would betray it, the forger has computed them again.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
from streamgauge.analysis.trial import analyse
from streamgauge.model.result_columns import INTERVAL_COLUMNS
from streamgauge.model.seeds import trial_seed
from streamgauge.store.directory import RunDirectory, TrialDirectory
from streamgauge.store.parquet import read_rows
from streamgauge.store.submission import LIST_NAME, unpack
from streamgauge.vocabulary.histograms import Histogram, decode, encode

PACKED = Path(__file__).with_name("data") / "packed"
ARRIVALS = PACKED / "arrivals.streamgauge.zip"
"""Three trials of Poisson arrivals from two producers, on the reference log at L4."""
FIXED_RATE = PACKED / "fixed-rate.streamgauge.zip"
"""One trial with equal gaps."""

Change = Callable[[dict[str, Any]], None]


def unpacked(source: Path, into: Path) -> RunDirectory:
    return unpack(source, into).run


def packed_as_it_was(source: Path, run: RunDirectory, target: Path) -> Path:
    """A submission whose files are those of the run, with the list of digests of before."""
    with zipfile.ZipFile(source) as archive:
        listed = archive.read(LIST_NAME)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as sink:
        sink.writestr(LIST_NAME, listed)
        for path in sorted(one for one in run.path.rglob("*") if one.is_file()):
            sink.write(path, path.relative_to(run.path).as_posix())
    return target


def edit(path: Path, change: Change) -> None:
    value = json.loads(path.read_text("utf-8"))
    change(value)
    path.write_text(json.dumps(value, indent=1), "utf-8")


def put(value: Any, where: str, to: Any) -> None:
    """Sets what is at a path such as `probes.0.host.cores`."""
    *steps, last = where.split(".")
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    value[int(last) if isinstance(value, list) else last] = to


def putting(**values: Any) -> Change:
    """A change of names; two underscores are a step."""

    def change(document: dict[str, Any]) -> None:
        for where, to in values.items():
            put(document, where.replace("__", "."), to)

    return change


def trial(run: RunDirectory, number: int = 1) -> Path:
    return run.path / f"trials/{number:03d}"


def everywhere(run: RunDirectory, change: Change, *, numbers: tuple[int, ...] = (1, 2, 3)) -> None:
    """Changes what the runner knew, and computes results anew."""
    for number in numbers:
        edit(trial(run, number) / "trial.json", change)
        again(trial(run, number))


def again(directory: Path) -> None:
    """Computes the result of a trial anew."""
    found = TrialDirectory(directory)
    context = found.read_context()
    assert context is not None
    found.write_result(analyse(context, directory))


def rewrite(directory: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Changes the rows of a trial's intervals, and computes the result anew."""
    path = directory / "intervals.parquet"
    rows = change(read_rows(path, INTERVAL_COLUMNS))
    schema = parquet.read_schema(path)
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)
    again(directory)


def faster(held: bytes) -> bytes:
    """A histogram whose slower half has the latency of the median."""
    found = decode(held)
    half = len(found.indices) // 2 + 1
    counts = found.counts[:half].copy()
    counts[-1] += found.counts[half:].sum()
    return encode(Histogram(found.layout, found.indices[:half], counts))


def without_slowest(held: bytes) -> bytes:
    found = decode(held)
    return encode(Histogram(found.layout, found.indices[:-1], found.counts[:-1]))


def _of_publish(
    change: Callable[[bytes], bytes], *columns: str
) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    def over(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            for name in columns or ("publish",):
                if row[name] and len(decode(row[name]).indices) > 2:
                    row[name] = change(row[name])
        return rows

    return over


def _a_figure(run: RunDirectory) -> None:
    edit(trial(run) / "result.json", lambda one: put(one, "publish_ms.p99", one["publish_ms"]["p99"] / 2))


def _a_rate(run: RunDirectory) -> None:
    edit(
        trial(run, 2) / "result.json",
        lambda one: put(one, "publish_rate_msgs_s", 2 * one["publish_rate_msgs_s"]),
    )


def _a_loss(run: RunDirectory) -> None:
    edit(trial(run) / "result.json", putting(audit__censored=3))


def _a_verdict(run: RunDirectory) -> None:
    def change(one: dict[str, Any]) -> None:
        one["validity"] |= (
            {"word": "invalid", "valid": False}
            if one["validity"]["valid"]
            else {"word": "valid", "valid": True}
        )

    edit(trial(run) / "result.json", change)


def _a_warning(run: RunDirectory) -> None:
    edit(
        trial(run) / "result.json",
        lambda one: put(one, "validity.warnings", one["validity"]["warnings"] + ["nothing was wrong"]),
    )


def _a_histogram(run: RunDirectory) -> None:
    rewrite(trial(run), _of_publish(faster))


def _a_histogram_and_its_ends(run: RunDirectory) -> None:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in _of_publish(faster)(rows):
            if row["publish"]:
                found = decode(row["publish"])
                row["max_ns"] = int(found.max or 0)
        return rows

    rewrite(trial(run), change)


def _slow_samples_dropped(run: RunDirectory) -> None:
    rewrite(trial(run), _of_publish(without_slowest, "publish", "service"))


def _an_interval_dropped(run: RunDirectory) -> None:
    rewrite(trial(run), lambda rows: [row for row in rows if row["interval"] != 1])


def _a_trial_dropped(run: RunDirectory) -> None:
    shutil.rmtree(trial(run, 2))
    edit(run.path / "manifest.json", lambda one: put(one, "trials", ["trials/001", "trials/003"]))


def _the_last_trial_dropped(run: RunDirectory) -> None:
    shutil.rmtree(trial(run, 3))
    edit(run.path / "manifest.json", lambda one: put(one, "trials", ["trials/001", "trials/002"]))


def _a_trial_dropped_and_the_others_moved_up(run: RunDirectory) -> None:
    shutil.rmtree(trial(run, 2))
    trial(run, 3).rename(trial(run, 2))
    everywhere(run, putting(trial=2, repeat=2), numbers=(2,))

    def change(one: dict[str, Any]) -> None:
        one["trials"] = ["trials/001", "trials/002"]
        at = one["command"].index("--repeat")
        one["command"][at + 1] = "2"

    edit(run.path / "manifest.json", change)


def _a_setting_of_the_result(run: RunDirectory) -> None:
    edit(trial(run) / "result.json", lambda one: one["durability"]["settings"].update(acks="none"))


def _a_setting(run: RunDirectory) -> None:
    everywhere(run, lambda one: one["durability"]["settings"].update({"node.1.num.network.threads": "8"}))


def _a_setting_of_one_trial(run: RunDirectory) -> None:
    everywhere(
        run,
        lambda one: one["durability"]["settings"].update({"node.1.num.network.threads": "8"}),
        numbers=(2,),
    )


def _the_workload(run: RunDirectory) -> None:
    everywhere(run, lambda one: one["workload"].update(batch_bytes=1))


def _the_rate(run: RunDirectory) -> None:
    def change(one: dict[str, Any]) -> None:
        one["workload"]["rate_msgs_s"] = one["rate_msgs_s"] = 800.0

    everywhere(run, change)

    def manifest(one: dict[str, Any]) -> None:
        one["workloads"][0]["rate_msgs_s"] = 800.0
        one["command"] = [word.replace("400", "800") for word in one["command"]]

    edit(run.path / "manifest.json", manifest)


def _the_duration(run: RunDirectory) -> None:
    def change(one: dict[str, Any]) -> None:
        one["workload"]["duration_s"], one["measure_until_s"] = 60.0, 61.0

    everywhere(run, change)

    def manifest(one: dict[str, Any]) -> None:
        one["workloads"][0]["duration_s"] = 60.0
        one["command"] = ["60s" if word == "2s" else word for word in one["command"]]

    edit(run.path / "manifest.json", manifest)


def _the_level_of_a_trial(run: RunDirectory) -> None:
    everywhere(run, lambda one: one["durability"].update(declared="L3", asked="L3"), numbers=(1,))


def _the_level(run: RunDirectory) -> None:
    everywhere(run, lambda one: one["durability"].update(declared="L3", asked="L3"))

    def manifest(one: dict[str, Any]) -> None:
        one["systems"][0]["level"] = "L3"
        one["command"] = ["L3" if word == "L4" else word for word in one["command"]]

    edit(run.path / "manifest.json", manifest)


def _a_seed(run: RunDirectory) -> None:
    everywhere(run, putting(seed=1), numbers=(1,))


def _all_seeds(run: RunDirectory) -> None:
    def change(one: dict[str, Any]) -> None:
        one["seed"] = trial_seed(9, one["workload"]["name"], one["repeat"])

    everywhere(run, change)

    def manifest(one: dict[str, Any]) -> None:
        one["seed"] = 9
        one["command"] = ["9" if word == "7" else word for word in one["command"]]

    edit(run.path / "manifest.json", manifest)


def _a_trial_of_another_run(run: RunDirectory) -> None:
    other = unpacked(FIXED_RATE, run.path.parent / "other")
    record = json.loads((trial(run, 2) / "trial.json").read_text("utf-8"))
    shutil.rmtree(trial(run, 2))
    shutil.copytree(trial(other), trial(run, 2))
    kept = (
        "run_id",
        "trial",
        "repeat",
        "seed",
        "workload",
        "started_unix_ms",
        "ended_unix_ms",
        "schedule_start_unix_ms",
        "probes",
        "rate_msgs_s",
    )
    everywhere(run, lambda one: one.update({name: record[name] for name in kept}), numbers=(2,))
    shutil.copyfile(trial(run, 1) / "events.jsonl", trial(run, 2) / "events.jsonl")


def _a_trial_twice(run: RunDirectory) -> None:
    for name in ("intervals.parquet", "resources.parquet"):
        shutil.copyfile(trial(run, 1) / name, trial(run, 2) / name)
    finish = json.loads((trial(run) / "trial.json").read_text("utf-8"))["finish"]
    everywhere(run, putting(finish=finish), numbers=(2,))


def _the_name_of_the_run(run: RunDirectory) -> None:
    everywhere(run, putting(run_id="20261124-000000-another"))
    edit(run.path / "manifest.json", putting(run_id="20261124-000000-another"))


def _the_books(run: RunDirectory) -> None:
    def change(one: dict[str, Any]) -> None:
        books = one["finish"]["audit"]
        books["sent"], books["acked"] = books["sent"] + 50, books["acked"] + 50
        for subscription in books["subscriptions"]:
            subscription["received"] += 50
            subscription["unique"] += 50

    everywhere(run, change, numbers=(1,))


def _the_books_of_a_subscription(run: RunDirectory) -> None:
    def change(one: dict[str, Any]) -> None:
        one["finish"]["audit"]["subscriptions"][0]["received"] += 1
        one["finish"]["audit"]["subscriptions"][0]["unique"] += 1

    everywhere(run, change, numbers=(1,))


def _the_version_of_the_system(run: RunDirectory) -> None:
    everywhere(run, putting(system_version="9.9.9"))
    edit(run.path / "manifest.json", lambda one: one["systems"][0].update(version="9.9.9"))


def _a_probe_of_the_manifest(run: RunDirectory) -> None:
    edit(run.path / "manifest.json", lambda one: one["probes"][0]["disk"].update(write_mb_s=9000.0))


def _all_probes(run: RunDirectory) -> None:
    def change(one: dict[str, Any]) -> None:
        for probe in one["probes"]:
            probe["disk"]["fsync_per_s"] = 90_000.0

    everywhere(run, change)
    edit(run.path / "manifest.json", change)


def _a_slower_network(run: RunDirectory) -> None:
    """So that its share of the limit looks better used."""

    def change(one: dict[str, Any]) -> None:
        for probe in one["probes"]:
            probe["network"]["loopback_mb_s"] = 0.01

    everywhere(run, change)
    edit(run.path / "manifest.json", change)


def _the_machine(run: RunDirectory) -> None:
    edit(run.path / "manifest.json", lambda one: one["host"].update(cpu_model="A better one", cores=64))


def _when(run: RunDirectory) -> None:
    everywhere(run, lambda one: one.update(started_unix_ms=one["started_unix_ms"] - 86_400_000), numbers=(2,))


@dataclass(frozen=True)
class Forgery:
    """What is changed, and the rules that notice it when all digests were made anew."""

    change: Callable[[RunDirectory], None]
    noticed_by: frozenset[str]


def _forgery(change: Callable[[RunDirectory], None], *rules: str) -> Forgery:
    return Forgery(change, frozenset(rules))


FORGERIES: Mapping[str, Forgery] = {
    "a figure": _forgery(_a_figure, "figures"),
    "a rate": _forgery(_a_rate, "figures"),
    "a loss": _forgery(_a_loss, "figures"),
    "a verdict": _forgery(_a_verdict, "judgement"),
    "a warning": _forgery(_a_warning, "judgement"),
    "a histogram": _forgery(_a_histogram, "parts", "extremes"),
    "a histogram and its ends": _forgery(_a_histogram_and_its_ends, "parts"),
    "slow samples dropped": _forgery(_slow_samples_dropped, "books", "schedule"),
    "an interval dropped": _forgery(_an_interval_dropped, "books", "schedule"),
    "a trial dropped": _forgery(_a_trial_dropped, "plan"),
    "the last trial dropped": _forgery(_the_last_trial_dropped, "plan"),
    "a trial dropped and the others moved up": _forgery(
        _a_trial_dropped_and_the_others_moved_up, "schedule", "seeds"
    ),
    "a setting of the result": _forgery(_a_setting_of_the_result, "told"),
    "a setting": _forgery(_a_setting, "asked"),
    "a setting of one trial": _forgery(_a_setting_of_one_trial, "asked"),
    "the workload": _forgery(_the_workload, "plan"),
    "the rate": _forgery(_the_rate, "schedule"),
    "the duration": _forgery(_the_duration, "schedule", "times"),
    "the level of a trial": _forgery(_the_level_of_a_trial, "level", "asked"),
    "the level": _forgery(_the_level, "level"),
    "a seed": _forgery(_a_seed, "seeds", "schedule"),
    "all seeds": _forgery(_all_seeds, "schedule"),
    "a trial of another run": _forgery(_a_trial_of_another_run, "schedule"),
    "a trial twice": _forgery(_a_trial_twice, "copies", "schedule"),
    "the name of the run": _forgery(_the_name_of_the_run, "schedule"),
    "the books": _forgery(_the_books, "books"),
    "the books of a subscription": _forgery(_the_books_of_a_subscription, "books"),
    "the version of the system": _forgery(_the_version_of_the_system, "asked"),
    "a probe of the manifest": _forgery(_a_probe_of_the_manifest, "probes"),
    "all probes": _forgery(_all_probes, "probes"),
    "a slower network": _forgery(_a_slower_network, "machine"),
    "the machine": _forgery(_the_machine, "probes"),
    "when": _forgery(_when, "times"),
}
