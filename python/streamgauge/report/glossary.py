"""One-line definitions of every term that a report uses; docs/method.md holds the long form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A word of the report and what it means."""

    title: str
    definition: str


TERMS: dict[str, Term] = {
    "publish": Term(
        "publish latency",
        "From the instant at which the schedule says that a message leaves to the instant at which "
        "its acknowledgement is read. "
        "A system that stalls pays for every message that was due meanwhile (no coordinated omission).",
    ),
    "end_to_end": Term(
        "end-to-end latency",
        "From the scheduled instant to the instant at which a consumer has the message, on one clock.",
    ),
    "service": Term(
        "service latency",
        "From handing the message to the client to its acknowledgement: what most tools call "
        "publish latency. It hides waiting.",
    ),
    "knee": Term(
        "knee",
        "Of a curve: the highest rate up to which p99 stays within twice that at low load. Its interval holds it with at least 95 %; it can lie "
        "anywhere between two points.",
    ),
    "send_delay": Term(
        "send delay",
        "How late the generator itself was. It is a health check: when it is large, the trial is invalid.",
    ),
    "read_delay": Term(
        "ack delay, receive delay",
        "How long acknowledgements and messages may have waited for the generator to read them, at the most. A "
        "health check, too.",
    ),
    "backpressure": Term(
        "back-pressure",
        "How long messages were held because too many were already unacknowledged; part of publish latency.",
    ),
    "percentile": Term(
        "p50, p99, p99.9",
        "The latency that 50 %, 99 % or 99.9 % of messages do not exceed, from histograms of all "
        "messages added together, "
        "never from averaged percentiles.",
    ),
    "rate": Term(
        "rate",
        "Messages acknowledged per second within the measured phase. MB is a million bytes of payload.",
    ),
    "backlog": Term(
        "backlog",
        "Messages acknowledged and not yet received by the subscription that lags most, at the end "
        "of an interval.",
    ),
    "cpu_per_message": Term(
        "CPU per message",
        "CPU time spent in the measured phase divided by messages sent; for the generator it "
        "covers producing and consuming.",
    ),
    "audit": Term(
        "audit",
        "Every message carries its producer, sequence number and a checksum. After the drain each "
        "one is accounted for: "
        "lost, duplicated, reordered, corrupted and unexpected messages are counted.",
    ),
    "valid": Term(
        "valid",
        "The generator was on time, reached its rate, had CPU to spare and kept balanced books, "
        "and the system had the settings "
        "that were asked for. A trial that is not valid is shown, not believed.",
    ),
    "steady": Term(
        "steady",
        "No drift, no cycle and no jumps in rate, latency and CPU over the measured phase.",
    ),
    "durability": Term(
        "durability level",
        "What must have happened before an acknowledgement. L1: a majority of replicas, fsynced. "
        "L2: a majority, not fsynced. "
        "L3: one copy, fsynced. L4: one copy, not fsynced.",
    ),
    "warm-up": Term(
        "warm-up",
        "The rate runs before measurement starts, without a gap. Messages that were due in the "
        "warm-up are in no figure.",
    ),
    "limit": Term(
        "limit and share",
        "What this machine can do by itself, probed before and after the run, and how much of it a "
        "trial used.",
    ),
    "median": Term(
        "median of trials",
        "Where trials repeat, figures are medians over the valid ones, with the 95 % interval of the median beside "
        "them; with fewer than three trials, with the smallest and the largest.",
    ),
    "write_amplification": Term(
        "write amplification",
        "Bytes that the system's processes wrote for each byte of payload published.",
    ),
    "quiet_time": Term(
        "quiet time",
        "The part of the measured phase in which no CPU was taken away: all but the windows in which a probe woke up late, and the recovery from them.",
    ),
    "disturbed": Term(
        "disturbed, bounds only",
        "Disturbed: CPUs were taken away for more than 1 % of the time, and the figures are those of quiet time. Bounds only: so much, or just when the "
        "system was slow, that figures cannot be told, but only what they are at least and at most.",
    ),
    "censored": Term(
        "censored",
        "A message of which the end was not seen: the run gave up waiting for it, or a disturbance began while it was under way. It is counted as at least "
        "so slow, never dropped.",
    ),
    "steal": Term("steal", "CPU time that the hypervisor gave to other guests."),
}
