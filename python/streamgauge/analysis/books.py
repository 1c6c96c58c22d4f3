"""The books of a trial: what the worker's audit says, whether its sums hold, and whether the intervals say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.analysis.intervals import Intervals, total
from streamgauge.model.result import Audit, SubscriptionAudit
from streamgauge.model.result_base import Headline


def audit_of(finish: Mapping[str, Any] | None) -> Audit:
    """The audit of a worker's answer to `finish`; None: there was no answer."""
    if not finish or not isinstance(finish.get("audit"), Mapping):
        return Audit(enabled=False, clean=False, balanced=False, imbalance="no audit was made")
    told = finish["audit"]
    known = SubscriptionAudit.model_fields
    subscriptions = [
        SubscriptionAudit(**{key: value for key, value in entry.items() if key in known})
        for entry in told.get("subscriptions", [])
    ]
    kinds = ("received", "lost", "duplicated", "reordered", "corrupted", "unexpected", "unknown", "recovered")
    sums = {kind: sum(getattr(subscription, kind) for subscription in subscriptions) for kind in kinds}
    audit = Audit(
        enabled=bool(told.get("enabled")),
        sent=int(told.get("sent", 0)),
        acked=int(told.get("acked", 0)),
        failed=int(told.get("failed", 0)),
        censored=int(told.get("censored", 0)),
        **sums,
        balanced=bool(told.get("balanced", False)),
        imbalance=told.get("imbalance"),
        missing=told.get("missing"),
        subscriptions=subscriptions,
    )
    wrong = _check_sums(audit)
    if wrong and audit.balanced:
        audit = audit.model_copy(update={"balanced": False, "imbalance": wrong})
    blemishes = (
        sum(sums[kind] for kind in kinds if kind not in ("received", "recovered"))
        + audit.censored
        + audit.failed
    )
    return audit.model_copy(update={"clean": audit.enabled and audit.balanced and blemishes == 0})


def unread_of(finish: Mapping[str, Any] | None) -> dict[str, int]:
    """Per subscription, the acknowledged messages that it did not receive: lost, or still to come when the run gave up."""
    return {one.name: one.lost + one.censored for one in audit_of(finish).subscriptions}


def _check_sums(audit: Audit) -> str | None:
    """The second half of the pair of assertions: the worker checked its sums, they are checked again after
    the journey.
    """
    if audit.sent != audit.acked + audit.failed + audit.censored:
        return (
            f"sent {audit.sent:,} is not acked {audit.acked:,} + failed {audit.failed:,} + "
            f"censored {audit.censored:,}"
        )
    if not audit.enabled:
        return None
    for one in audit.subscriptions:
        if one.received != one.unique + one.duplicated + one.corrupted + one.unexpected:
            return (
                f"subscription {one.name} received {one.received:,}, which is not unique "
                f"{one.unique:,} + duplicated "
                f"{one.duplicated:,} + corrupted {one.corrupted:,} + unexpected {one.unexpected:,}"
            )
        if not one.balanced:
            return f"subscription {one.name}: {one.imbalance or 'the worker gave no reason'}"
    return None


def disagreements(intervals: Intervals, audit: Audit, headline: Headline) -> list[str]:
    """Compares the intervals, from which the figures come, with the audit's totals; a sentence for each sum that differs."""
    found: list[str] = []
    counters = intervals.counters()
    for column, name, expected in (
        ("sent_msgs", "sent", audit.sent),
        ("acked_msgs", "acknowledged", audit.acked),
    ):
        counted = total(counters, column)
        if counted != expected:
            found.append(
                f"The intervals hold {counted:,} {name} messages, the books {expected:,}: the "
                "figures leave something out."
            )
    recorded = intervals.histogram(headline, None).count
    beyond = intervals.beyond(headline, None)
    recorded += beyond.overflow + beyond.negative
    if audit.acked and recorded != audit.acked:
        found.append(
            f"The {headline} histograms hold {recorded:,} samples for {audit.acked:,} acknowledged messages: "
            "the percentiles leave something out."
        )
    return found
