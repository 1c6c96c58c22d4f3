"""Names that the shell completes, written down because it waits for them: who knows them takes longer to load than anybody waits for the tab key.

tests/test_completion.py holds them against those who know.
"""

from __future__ import annotations

LEVELS = ("L1", "L2", "L3", "L4")
FAULTS = (
    "kill",
    "stop",
    "cont",
    "restart",
    "power-cut",
    "fsync-delay",
    "disk-full",
    "disk-free",
    "cut-network",
    "heal",
)
SCALES = ("full", "laptop", "quick")
_FIGURES = """
started_unix_ms ended_unix_ms publish_ms.mean publish_ms.min publish_ms.p50 publish_ms.p75 publish_ms.p90 publish_ms.p95 publish_ms.p99
publish_ms.p99_9 publish_ms.p99_99 publish_ms.max publish_ms.count publish_ms.overflow publish_ms.negative end_to_end_ms.mean end_to_end_ms.min
end_to_end_ms.p50 end_to_end_ms.p75 end_to_end_ms.p90 end_to_end_ms.p95 end_to_end_ms.p99 end_to_end_ms.p99_9 end_to_end_ms.p99_99 end_to_end_ms.max
end_to_end_ms.count end_to_end_ms.overflow end_to_end_ms.negative service_ms.mean service_ms.min service_ms.p50 service_ms.p75 service_ms.p90
service_ms.p95 service_ms.p99 service_ms.p99_9 service_ms.p99_99 service_ms.max service_ms.count service_ms.overflow service_ms.negative
send_delay_ms.mean send_delay_ms.min send_delay_ms.p50 send_delay_ms.p75 send_delay_ms.p90 send_delay_ms.p95 send_delay_ms.p99 send_delay_ms.p99_9
send_delay_ms.p99_99 send_delay_ms.max send_delay_ms.count send_delay_ms.overflow send_delay_ms.negative backpressure_ms.mean backpressure_ms.min
backpressure_ms.p50 backpressure_ms.p75 backpressure_ms.p90 backpressure_ms.p95 backpressure_ms.p99 backpressure_ms.p99_9 backpressure_ms.p99_99
backpressure_ms.max backpressure_ms.count backpressure_ms.overflow backpressure_ms.negative search.low_msgs_s search.high_msgs_s search.width_percent
search.soak.rate_msgs_s search.soak.seconds search.soak.achieved_share search.soak.growth_share search.soak.growth_share_low
search.soak.growth_share_high search.soak.growth_share_max search.soak.outstanding_msgs search.soak.publish_ms_p99 search.soak.send_delay_ms_p99
search.soak.backpressured_share search.soak.workers_share search.soak.busiest_lane_share search.soak.steal_share search.soak.failed_msgs
catch_up.size_bytes catch_up.built_bytes catch_up.build_s catch_up.chase_s warm_up.limit_s warm_up.lasted_s faults.resolution_s faults.unavailable_s
faults.recovered_s faults.caught_up_s publish_rate_msgs_s publish_rate_mb_s consume_rate_msgs_s consume_rate_mb_s target_rate_msgs_s achieved_share
backlog_msgs_max waiting_msgs_max failed_msgs retries audit.sent audit.acked audit.failed audit.received audit.lost audit.duplicated audit.reordered
audit.corrupted audit.unexpected audit.unknown audit.recovered audit.censored cpu.cores cpu.duration_s cpu.workers_s cpu.system_s cpu.others_s
cpu.steal_s cpu.workers_us_per_msg cpu.system_us_per_msg cpu.workers_share cpu.system_share cpu.others_share limits.disk_write_mb_s
limits.disk_read_mb_s limits.fsync_ms_p50 limits.fsync_ms_p99 limits.loopback_mb_s limits.round_trip_us_p50 limits.memcpy_mb_s limits.crc32c_mb_s
limits.wakeup_us_p99 limits.cores share_of_limit.value tail.above_ms tail.msgs tail.intervals write_amplification worker_rss_bytes_max
end_to_end_bound_ms
"""
FIGURES = tuple(_FIGURES.split())
