"""How figures look while a run goes on."""

from __future__ import annotations

from streamgauge.model.result import TrialResult


def rate(value: float | None) -> str:
    """Messages per second: `50,000`."""
    return "-" if value is None else f"{value:,.0f}"


def ms(value: float | None) -> str:
    """Milliseconds with three digits that mean something."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def errors(kinds: dict[str, int]) -> str:
    """`TIMED_OUT 3, NOT_LEADER 1`, or an empty string."""
    return ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items()))


def verdict(result: TrialResult) -> str:
    """One line on a trial that is over."""
    if result.status == "failed":
        return f"failed: {result.failure}"
    headline = result.headline_ms
    if result.status == "interrupted" and not headline.count:
        return "interrupted before anything was measured"
    figures = (
        f"{rate(result.standing_rate('publish_rate_msgs_s'))} msg/s, {result.headline} p50 {ms(headline.p50)} "
        f"p99 {ms(headline.p99)} ms, end-to-end p99 {ms(result.standing_ms('end_to_end_ms').p99)} ms"
    )
    if result.status == "interrupted":
        return f"interrupted: {figures}"
    audit = (
        ("no audit" if result.audit.missing else "audit off")
        if not result.audit.enabled
        else ("audit clean" if result.audit.clean else "audit NOT clean")
    )
    validity = result.validity
    valid = "INVALID: " + " ".join(validity.reasons) if validity.is_invalid else validity.called
    return f"{figures}, {audit}, {valid}"
