"""Which tests run where (docs/testing.md). One table for all, because a mark at each of a thousand tests would be looked at by nobody.

A test runs beside others unless what it asserts is about time on a quiet machine. Tests that are not named here need no process of the
lab and are fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from functools import cache
from typing import TypeVar

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

QUIET = (
    "test_fleet_namespaces.py::*",
    "test_gates_real.py::test_a_longer_linger*",
    "test_gates_real.py::test_the_same_again*",
    "test_idle.py::test_cpus*",
    "test_lab_real.py::test_the_search_brackets_the_limit_of_a_throttled_log",
    "test_omb_worker.py::test_a_leaders_run_from_start_to_end*",
)
"""Their figures would be those of the neighbours: one at a time, with nothing beside them."""

LONG = ("test_long.py::*", "test_deploy_roles.py::test_pulsar*", "test_study_hosts.py::*")
"""Whole studies: `make test-long`. docs/testing.md says when they were run last, and what came out."""

LAB = (
    "test_agents.py::*agent*",
    "test_at_address.py::*",
    "test_boundary.py::test_a_run_that_is_resumed*",
    "test_boundary.py::test_a_study_file_is_code*",
    "test_causes_real.py::*",
    "test_completion.py::*",
    "test_containerfile.py::*",
    "test_coordinated_omission.py::*",
    "test_distributions.py::test_the_lab_starts*",
    "test_docs_commands.py::test_a_page*",
    "test_deploy_roles.py::test_a_playbook*",
    "test_deploy_roles.py::test_disks*",
    "test_durability_real.py::*",
    "test_fleet_real.py::*",
    "test_gates_real.py::*",
    "test_gauge_log_*.py::*",
    "test_idle.py::*",
    "test_kubernetes_objects.py::test_a_worker_that_is_stopped*",
    "test_kubernetes_real.py::*",
    "test_lab_features.py::test_a_backlog*",
    "test_lab_features.py::test_sizes_skewed*",
    "test_lab_features.py::test_topics_that_exist*",
    "test_lab_real.py::*",
    "test_lab_runs.py::*",
    "test_live_browser.py::*",
    "test_metrics.py::test_every_query*",
    "test_metrics.py::test_prometheus*",
    "test_omb_fleet_real.py::*",
    "test_omb_worker.py::*",
    "test_opening.py::*",
    "test_opening_refusals.py::*",
    "test_packaging.py::*",
    "test_probe_hosts.py::test_a_time*",
    "test_probe_hosts.py::test_what_is_asked*",
    "test_profiles_real.py::*",
    "test_quiet_real.py::*",
    "test_security_real.py::*",
    "test_security_runs.py::*",
    "test_study_fleet.py::test_a_study_of_two*",
    "test_study_hooks.py::test_a_variant*",
    "test_study_hooks.py::test_hooks_without*",
    "test_study_run.py::*",
    "test_suite.py::test_a_prepared*",
    "test_suite.py::test_a_skip*",
    "test_suite.py::test_what_is_green*",
    "test_supply_chain.py::test_the_bill*",
    "test_systems_standalone.py::*",
    "test_worker_access.py::*",
)
"""They start programs of ours, each for seconds: not in `make test-fast`."""

SIMULATES = (
    "test_causes.py::*",
    "test_explanation.py::*",
    "test_fuzz_lab.py::*",
    "test_inference.py::test_a_bound*",
    "test_inference.py::test_a_range*",
    "test_inference.py::test_a_study*",
    "test_inference.py::test_going_on*",
    "test_inference.py::test_no_difference*",
    "test_inference.py::test_of_many*",
    "test_inference.py::test_rounds_that_lack*",
    "test_inference.py::test_the_price*",
    "test_inference.py::test_what_is_true*",
    "test_lists_json.py::*",
    "test_profiles.py::test_by_chance*",
    "test_profiles.py::test_damage*",
    "test_quiet.py::test_a_level_that_wanders*",
    "test_quiet.py::test_a_mean*",
    "test_quiet.py::test_bounds_hold*",
    "test_quiet.py::test_intervals*",
    "test_quiet.py::test_the_interval*",
    "test_quiet.py::test_where_it_cannot_be_told*",
    "test_report_html.py::test_sixty*",
    "test_statistics.py::*",
    "test_steadiness.py::test_neighbours*",
    "test_steadiness.py::test_noise_alone*",
    "test_studies_true.py::*",
    "test_study_model.py::test_every_study_that_ships*",
    "test_study_variants.py::*",
    "test_study_versions.py::*",
    "test_verify.py::*",
)
"""They start nothing, and compute for seconds: simulations by the hundred, whole studies, a hundred runs that were changed. Not in `make test-fast` either."""

LAST = ("test_containerfile.py::test_the_images*", "test_packaging.py::test_the_wheel_*")
"""They come after all others that take long: they run cargo, which builds Rust's test programs beside those (tools/suite.py)."""

GROUPS = (
    ("ansible", "test_deploy_roles.py::*"),
    ("pulsar", "test_interop_pulsar.py::*"),
    *(
        (f"conformance of {name}", f"test_conformance.py::{name}::*")
        for name in ("TestGaugeLog", "TestKafka", "TestNats", "TestPulsar", "TestRabbitMq")
    ),
    ("kafka", "test_systems_kafka.py::*"),
    ("rabbitmq", "test_interop_rabbitmq*.py::*"),
    ("rabbitmq", "test_rabbitmq_refusals.py::*"),
    ("nats", "test_systems_nats.py::*"),
    ("opened", "test_opening_refusals.py::*"),
    ("log", "test_omb_worker.py::*"),
    ("browser", "test_report_browser.py::*"),
    ("live", "test_live_browser.py::*"),
    ("prometheus", "test_metrics.py::test_every_query*"),
    ("prometheus", "test_metrics.py::test_prometheus*"),
    ("site", "test_site.py::*"),
    ("sources", "test_dependencies.py::test_what_is_installed*"),
    ("sources", "test_layers.py::*"),
    ("sources", "test_waiting.py::test_only_what_paces*"),
    ("sources", "test_wording.py::test_no_*"),
    ("accessibility", "test_accessibility.py::*"),
    *(("cargo", pattern) for pattern in LAST),
    ("run", "test_lab_real.py::test_every_message_is_accounted_for"),
    ("run", "test_lab_real.py::test_the_result_is_as_its_schema_says"),
    ("run", "test_lab_real.py::test_nothing_of_the_system_remains"),
    ("run", "test_lab_real.py::test_a_run_is_listed_shown_reported_exported_and_imported"),
)
"""Tests that share a broker, a browser, a run or what they have read: one process runs them all, so that it is started once."""

COMPUTES = (
    "test_opening.py::*",
    "test_packaging.py::*",
    *SIMULATES,
)
"""Of those that take long, they want a core all the time, as JVMs do while they start; the others wait for most of theirs."""


LONGEST = (
    "test_study_run.py::*",
    "test_security_real.py::test_pulsar*",
    "test_quiet_real.py::*",
    "test_docs_commands.py::test_a_page*",
    "test_systems_kafka.py::*",
    "test_lab_runs.py::test_a_sweep*",
    "test_lab_runs.py::test_the_search*",
    "test_fleet_real.py::test_a_worker_that_answers*",
)
"""They come first of their kind, so that none of them is left over when the others are done."""


Test = TypeVar("Test")


def name_of(nodeid: str) -> str:
    """FILE::TEST, as the tables have it. A test's parameters may hold slashes too."""
    path, _, test = nodeid.partition("::")
    return f"{path.rpartition('/')[2]}::{test}"


@cache
def any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """What fits one of them: each of three thousand tests is looked up in every table, by every process."""
    return re.compile("|".join(map(translate, patterns)))


def is_any(nodeid: str, patterns: tuple[str, ...]) -> bool:
    """Whether a test is in a table."""
    return any_of(patterns).match(name_of(nodeid)) is not None


@cache
def scope_of(nodeid: str) -> str:
    """What one process runs in one go: a group, or the test alone."""
    return next((group for group, pattern in GROUPS if is_any(nodeid, (pattern,))), nodeid)


def kind_of(items: list[pytest.Item]) -> str:
    """What the tests of a scope want of the machine."""
    if is_any(items[0].nodeid, LAST):
        return "last"
    marks = {mark.name for item in items for mark in item.iter_markers()}
    if "jvm" in marks:
        return "jvm"
    if not marks & {"server", "lab"}:
        return "quick"
    return "computes" if is_any(items[0].nodeid, COMPUTES) else "waits"


def in_turn(kinds: Mapping[str, Sequence[list[Test]]]) -> list[Test]:
    """Each kind is spread over all that take long, so that the cores are neither wanted by all at once nor by nobody. What is quick fills them
    at the end, when a long test may be left over."""
    ends = ("last", "quick")
    places = [
        ((at + 0.5) / len(scopes), kind, at)
        for kind, scopes in kinds.items()
        if kind not in ends
        for at in range(len(scopes))
    ]
    slow = (item for _, kind, at in sorted(places) for item in kinds[kind][at])
    return [*slow, *(item for kind in ends for scope in kinds.get(kind, ()) for item in scope)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks and orders the tests."""
    scopes: dict[str, list[pytest.Item]] = {}
    for item in items:
        for mark, patterns in (("quiet", QUIET), ("long", LONG), ("lab", LAB + SIMULATES)):
            if is_any(item.nodeid, patterns):
                item.add_marker(mark)
        # Those of the other lanes are left out later, and must not make this one's order.
        lane = next((mark for mark in ("quiet", "long", "kubernetes") if item.get_closest_marker(mark)), "")
        scopes.setdefault(f"{lane} {scope_of(item.nodeid)}", []).append(item)
    kinds: dict[str, list[list[pytest.Item]]] = {}
    others: list[pytest.Item] = []
    for name, scope in scopes.items():
        if name.startswith(" "):
            kinds.setdefault(kind_of(scope), []).append(scope)
        else:
            others += scope
    for scopes_of_kind in kinds.values():
        scopes_of_kind.sort(key=lambda scope: not is_any(scope[0].nodeid, LONGEST))
    items[:] = in_turn(kinds) + others


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives tests to processes in their order, those of a group together. (xdist's own groups are lost with pytest 9.2, silently: its issue
    1386.)"""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Ours, whatever --dist says."""
    config.option.loadscopereorder = False
    return Scheduling(config, log)
