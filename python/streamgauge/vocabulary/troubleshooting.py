"""Where docs/troubleshooting.md says more about a message: the one table from what is said to the page's anchors.

Reasons and remarks are kept in results as sentences, and those of runs of before stay as they are, so that the table is keyed by how a sentence begins
or by what is always in it. Errors are keyed by their class, where no sentence says more. tests/test_docs_messages.py holds the table against the
sentences in the code, against stored trials, and against the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from streamgauge.vocabulary.errors import (
    FleetFailure,
    InputError,
    SystemFailure,
    SystemInputError,
    WorkerLost,
    WorkerRefused,
)

PAGE = "docs/troubleshooting.md"


@dataclass(frozen=True)
class Topic:
    """A section of the page, and the sentences that it is about."""

    anchor: str
    says: str
    """A regular expression that is looked for anywhere in a sentence."""


NOT_AS_ASKED = "settings-are-not-those-that-were-asked-for"
TRIAL_FAILED = "the-trial-failed"
NOT_CLEAN = "the-audit-is-not-clean"

REASONS = (
    Topic("the-generator-was-late", r"^The generator was late( by itself)?:"),
    Topic("a-worker-used-its-cores-up", r"^Worker \S+ used \d+ % of its cores"),
    Topic("the-rate-was-not-reached", r"^Achieved .* of the target rate"),
    Topic("the-rate-that-was-found-did-not-hold", r"^The rate that was found did not hold"),
    Topic("nothing-was-measured", r"^No message was (measured|read):"),
    Topic("messages-failed", r"messages? failed( \(.*\))?\."),
    Topic("messages-never-left", r"fell due and never left"),
    Topic(
        "the-books-do-not-balance", r"^The books do not balance|^The intervals hold|^The \w+ histograms hold"
    ),
    Topic(NOT_AS_ASKED, r"^Durability \S+ was asked for"),
    Topic("a-worker-was-lost", r"^worker lost:|^A worker was lost"),
    Topic("a-node-was-lost", r"^a node was lost, and the load went on"),
    Topic("its-figures-could-not-be-computed", r"^its figures could not be computed"),
    Topic("the-lab-was-killed", r"^the lab was killed"),
    Topic("the-disk-is-full", r"^disk full:"),
    Topic("out-of-time", r"^out of time:"),
    Topic("a-fleet-failed", r"^fleet failed:"),
    Topic("a-system-failed", r"^system failed:"),
)
"""Why a trial is invalid. Settings that are not as asked are told by each system in its own words (`of_reason`)."""

CONCLUSIONS = (
    Topic("disturbed-or-the-kernel-at-work", r"the kernel's work for the system itself"),
    Topic("bounds-only-the-rate-was-not-reached", r"might have kept up"),
    Topic(
        "bounds-only-who-was-late-is-not-known", r"Whether the generator was late by itself cannot be told"
    ),
    Topic(
        "bounds-only-disturbed-while-the-system-was-slow",
        r"just when the system was slow",
    ),
    Topic("bounds-only-too-little-quiet-time", r"quiet time is too short for any figure"),
    Topic("disturbed", r"Figures of quiet time are the system's"),
    Topic("nothing-watched-the-cpus", r"^Nothing watched whether the CPUs were to be had"),
)
"""What a trial on a disturbed machine is worth."""

REMARKS = (
    Topic("the-load-is-not-steady", r"^The trial is (drifting|cyclic|unsteady):|^the load was not steady"),
    Topic("too-short-to-judge", r"^Too short to judge steadiness"),
    Topic("more-than-the-target-was-acknowledged", r"worked off what the warm-up had left waiting"),
    Topic("a-closed-loop", r"^Closed loop:"),
    Topic("messages-failed", r"sends were retried and succeeded|^Errors without a failed message"),
    Topic("the-generator-was-late", r"may be the generator's own\.|^The generator was late in the phase"),
    Topic("the-machine-held-messages-up", r"^The generator was on time in quiet time"),
    Topic("steal", r"^Steal was"),
    Topic("other-programs", r"used \d+ % of .*CPU \(above"),
    Topic("fewer-cores-than-brokers", r"cores? per broker on this"),
    Topic("a-cluster-that-already-runs", r"^The cluster was not started by this run"),
    Topic("a-lane-was-busy", r"^Lane \S+ of worker"),
    Topic(
        "a-process-was-not-profiled",
        r"could not be profiled: |^the generator was not profiled|^the profile of \S+ ",
    ),
    Topic("the-bottleneck-is-unexplained", r"the bottleneck is unexplained"),
    Topic("the-audit-is-off", r"^The audit is off|^Topics were read that existed before"),
    Topic("the-clocks-of-hosts", r"^End-to-end latencies between hosts|^The comparison of clocks"),
)
"""What does not invalidate."""

ERRORS = (
    Topic("an-ambiguous-unit", r"is ambiguous: write"),
    Topic("a-file-that-is-not-trusted", r"--trust-file"),
    Topic("a-port-is-in-use", r"port \d+ is in use"),
    Topic("a-system-cannot-run-here", r"cannot run here|command mvn is not on the PATH|no Java (found|\d+)"),
    Topic(
        "the-program-gauge-was-not-found", r"program 'gauge' was not found|no such program; expected the path"
    ),
    Topic("not-enough-memory", r"MiB are available"),
    Topic("a-cluster-does-not-answer", r"cannot attach to"),
    Topic("a-download-is-not-what-was-released", r"is not what streamgauge was released with"),
    Topic("a-certificate-is-not-the-one-that-was-pinned", r"shows a certificate with the fingerprint"),
)
"""Errors of which the class alone would say too little."""

KINDS: dict[type[Exception], str] = {
    InputError: "the-input-is-wrong",
    SystemInputError: "the-system-cannot-do-that",
    SystemFailure: "a-system-failed",
    FleetFailure: "a-fleet-failed",
    WorkerLost: "a-worker-was-lost",
    WorkerRefused: "a-worker-refused",
    OSError: "a-file-cannot-be-used",
}
"""All other errors."""


def _anchor(sentence: str, topics: Iterable[Topic]) -> str | None:
    return next((topic.anchor for topic in topics if re.search(topic.says, sentence)), None)


def of_reason(reason: str, mismatches: Iterable[str] = ()) -> str:
    """The anchor of a reason for which a trial is invalid. `mismatches`: those of its settings."""
    return _anchor(reason, REASONS) or (NOT_AS_ASKED if reason in mismatches else TRIAL_FAILED)


def of_conclusion(conclusion: str) -> str | None:
    """The anchor of what a trial on a disturbed machine is worth; None where nothing was against it."""
    return _anchor(conclusion, CONCLUSIONS)


def of_remark(remark: str) -> str | None:
    """The anchor of a remark; None where it says all there is to say."""
    return _anchor(remark, (*REMARKS, *REASONS))


def of_error(error: Exception) -> str | None:
    """The anchor of an error that is somebody's; None for a fault of the program."""
    kind = next((anchor for known, anchor in KINDS.items() if isinstance(error, known)), None)
    return None if kind is None else _anchor(str(error), ERRORS) or kind


def see(anchors: Iterable[str | None]) -> str:
    """`docs/troubleshooting.md#disturbed, #steal`; empty where there are none."""
    found = list(dict.fromkeys(anchor for anchor in anchors if anchor))
    return f"{PAGE}#{', #'.join(found)}" if found else ""
