"""The columns of the tables beside a result: name -> type in Parquet."""

from __future__ import annotations

METRICS = ("publish", "service", "send_delay", "backpressure", "ack_delay", "receive_delay", "end_to_end")
"""What has histograms in an interval: in rows of role producer, and those of a subscription (receive_delay, end_to_end) in rows of role consumer."""

INTERVAL_COLUMNS: dict[str, str] = {
    # Key.
    "worker": "string",  # worker's name
    "interval": "int32",  # index from the trial's start
    "start_s": "float64",  # on the schedule's axis
    "duration_s": "float64",
    "role": "string",  # worker (counters), producer (publish, service, ... histograms), consumer (end-to-end)
    "phase": "string",  # null for role worker: the phase in which the messages were intended
    "subscription": "string",  # for consumer rows
    # role worker: counters of what was seen in the interval, summed over subscriptions where they are per subscription.
    "sent_msgs": "int64",
    "sent_bytes": "int64",
    "acked_msgs": "int64",
    "acked_bytes": "int64",
    "failed_msgs": "int64",
    "retries": "int64",
    "errors": "string",  # JSON object: kind -> count
    "waiting_msgs": "int64",  # level at the end of the interval
    "requests": "int64",
    "batches": "int64",
    "wakeups": "int64",  # how often lanes had nothing to do and waited
    "cpu_s": "float64",  # of the worker's process
    "lanes_cpu_s": "string",  # JSON list: of each lane, in the order of the result's lanes of this worker
    "rss_bytes": "int64",
    "joined_lanes": "int64",  # lanes whose part of the interval is told together with that of others
    "backpressured_s": "float64",
    # role consumer, one row per subscription with phase null for these counters; and per phase with the histogram.
    "received_msgs": "int64",
    "received_bytes": "int64",
    "fetches": "int64",
    "backlog_msgs": "int64",  # level at the end of the interval
    # Histograms: HdrHistogram V2 deflate, raw bytes, ns; null where the row has none.
    "publish": "binary",
    "service": "binary",
    "send_delay": "binary",
    "backpressure": "binary",
    "end_to_end": "binary",
    "ack_delay": "binary",  # how long acknowledgements may have waited for the generator to read them
    "receive_delay": "binary",  # the same of messages; in the rows of role producer, of all subscriptions, in runs from before 2026-11-30
    "overflow": "int64",  # samples beyond 1 h, not in the histograms, summed over the row's metrics
    "negative": "int64",  # samples below 0, not in the histograms
    "unacked_msgs": "int64",  # role producer: messages of the phase that ended without an acknowledgement
    # Extremes of the row's headline metric (publish; end_to_end for role consumer) as the worker saw them, beyond the range included.
    "min_ns": "int64",
    "max_ns": "int64",
    # Quiet time (docs/method.md), null where no probes were at work. Histograms as above; of the messages decided in the interval.
    "publish_quiet": "binary",
    "publish_censored": "binary",  # how long they had been under way
    "publish_left_out": "int64",
    "service_quiet": "binary",
    "service_censored": "binary",
    "service_left_out": "int64",
    "send_delay_quiet": "binary",
    "send_delay_censored": "binary",
    "send_delay_left_out": "int64",
    "end_to_end_quiet": "binary",
    "end_to_end_censored": "binary",
    "end_to_end_left_out": "int64",
    "ack_delay_quiet": "binary",
    "ack_delay_censored": "binary",
    "ack_delay_left_out": "int64",
    "receive_delay_quiet": "binary",
    "receive_delay_censored": "binary",
    "receive_delay_left_out": "int64",
    # Samples that are not in the two histograms of the row's headline metric: beyond 1 h, below 0.
    "quiet_overflow": "int64",
    "quiet_negative": "int64",
    "censored_overflow": "int64",
    # role worker.
    "quiet_s": "float64",  # of duration_s
    "disturbed_s": "float64",
    "quiet_sent_msgs": "int64",  # due in quiet time; of the messages decided in the interval
    "quiet_acked_msgs": "int64",
    "undecided_msgs": "int64",  # counted as disturbed for want of room
    "disturbance": "string",  # JSON object: windows, unlisted, attraction, steal_s, ... (docs/worker-api.md)
    # role consumer, rows with counters.
    "quiet_received_msgs": "int64",
}

LATER_COLUMNS = frozenset({"lanes_cpu_s"})
"""Those that tables of earlier runs do not have: null there."""

METRIC_COLUMNS: dict[str, str] = {
    "interval": "int32",  # same index and axis as the intervals
    "start_s": "float64",
    "duration_s": "float64",
    "at_s": "float64",  # on the schedule's axis: when it was asked, at the end of the interval
    "source": "string",  # the process that told it ("bookie-1"), or its address
    "metric": "string",  # name (TrialResult.own_metrics)
    "value": "float64",  # as told: a counter is its total
}

PROFILE_COLUMNS: dict[str, str] = {
    "interval": "int32",  # same index and axis as the intervals
    "start_s": "float64",  # on the schedule's axis: when the thread was seen
    "duration_s": "float64",  # what it stands for: CPU time (state cpu), or time between two looks
    "process": "string",  # as in resources
    "role": "string",  # system | worker
    "state": "string",  # cpu: CPU time, by perf | java: a JVM's thread that ran | native: one in native code, at work there or waiting
    "thread": "string",  # its name, N for numbers
    "stack": "string",  # functions from the outermost to the innermost, separated by semicolons
}

RESOURCE_COLUMNS: dict[str, str] = {
    "interval": "int32",  # same index and axis as the intervals
    "start_s": "float64",
    "duration_s": "float64",
    "scope": "string",  # system | worker | lab | others | host | thread (of the system: the busiest of each process, every 5 intervals)
    "process": "string",  # name of the process for scopes system and worker; null otherwise
    "cpu_s": "float64",  # user + system CPU spent in the interval; host: all cores together, steal excluded
    "steal_s": "float64",  # host only
    "rss_bytes": "int64",
    "disk_write_bytes": "int64",
    "disk_read_bytes": "int64",
    # host only: the disk under the system's data, as the kernel counts it (/proc/diskstats).
    "flushes": "int64",  # of its write cache: what an fsync waits for
    "flush_s": "float64",  # time that they took, summed
    "disk_busy_s": "float64",  # time with anything under way
    # Where an agent told of a machine of the cluster (docs/causes.md); null for the lab's own. Its scopes are system, others, host, thread, and disk and
    # interface (process: their names).
    "host": "string",
    "run_delay_s": "float64",  # system: time for which its threads waited for a CPU
    "disk_queue_s": "float64",  # disk: time under way, summed over all that was
    "disk_ops": "int64",  # disk: reads and writes
    "disk_op_s": "float64",  # disk: time that they took, summed
    "net_received_bytes": "int64",  # interface
    "net_sent_bytes": "int64",
    "pressure_cpu_s": "float64",  # host: time for which something waited (PSI)
    "pressure_io_s": "float64",
    "pressure_memory_s": "float64",
    "retransmits": "int64",  # host: TCP segments sent again
    "memory_available_bytes": "int64",  # host
    "page_cache_bytes": "int64",  # host
    "disturbed_s": "float64",  # host: time in which a CPU was not to be had
    # system, of either: calls of fsync and fdatasync that returned, time that its threads were in them, and the squares of these times (docs/causes.md);
    # null where that cannot be seen.
    "syncs": "int64",
    "sync_s": "float64",
    "sync_s2": "float64",
}
