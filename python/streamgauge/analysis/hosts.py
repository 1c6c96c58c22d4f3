"""The machines of a cluster, from what their agents told: figures of the measured phase, and series for causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from streamgauge.analysis import limits as limits_module
from streamgauge.analysis.intervals import Row, Series, Values, lined_up_resources, total, total_s
from streamgauge.model.result_hosts import ClusterHost, DiskFigures, HostFigures
from streamgauge.model.result_machine import Share

BYTES_PER_MB = 1e6
LOOPBACK = "lo"
EXTRA = ("run_delay_s", "pressure_cpu_s", "pressure_io_s", "pressure_memory_s", "retransmits", "disturbed_s")


def figures(hosts: Sequence[ClusterHost], rows: Sequence[Row]) -> list[HostFigures]:
    """Each machine of which something is known. `rows`: those of agents, in the measured window."""
    by_host: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_host[str(row["host"])].append(row)
    return [_figures(host, by_host[host.name]) for host in hosts if by_host[host.name]]


def _figures(host: ClusterHost, rows: Sequence[Row]) -> HostFigures:
    def of(scope: str) -> list[Row]:
        return [row for row in rows if row["scope"] == scope]

    whole, system = of("host"), of("system")
    seconds = max(total_s(whole, "duration_s"), 1e-9)
    cores_s = host.cores * seconds

    def share(column: str, chosen: Sequence[Row] = whole) -> float | None:
        known = [row for row in chosen if row[column] is not None]
        return total_s(known, column) / seconds if known else None

    retransmits = [row for row in whole if row["retransmits"] is not None]
    network = [row for row in of("interface") if row["process"] != LOOPBACK]
    available = [
        int(row["memory_available_bytes"]) for row in whole if row["memory_available_bytes"] is not None
    ]
    cached = [int(row["page_cache_bytes"]) for row in whole if row["page_cache_bytes"] is not None]
    return HostFigures(
        name=host.name,
        cores=host.cores,
        seconds=total_s(whole, "duration_s"),
        cpu_share=total_s(whole, "cpu_s") / cores_s,
        system_cpu_share=total_s(system, "cpu_s") / cores_s,
        steal_share=total_s(whole, "steal_s") / cores_s,
        disturbed_share=share("disturbed_s"),
        run_delay_share=share("run_delay_s", system),
        pressure_cpu_share=share("pressure_cpu_s"),
        pressure_io_share=share("pressure_io_s"),
        pressure_memory_share=share("pressure_memory_s"),
        retransmits_per_s=total(retransmits, "retransmits") / seconds if retransmits else None,
        network_mb_s=(total(network, "net_received_bytes") + total(network, "net_sent_bytes"))
        / seconds
        / BYTES_PER_MB,
        memory_available_bytes_min=min(available, default=None),
        page_cache_bytes=cached[-1] if cached else None,
        disks=_disks(of("disk"), seconds),
        limits=None if host.probe is None else limits_module.limits([host.probe]),
    )


def _disks(rows: Sequence[Row], seconds: float) -> list[DiskFigures]:
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[str(row["process"])].append(row)
    found = []
    for name, mine in sorted(by_name.items()):
        ops, flushes = total(mine, "disk_ops"), total(mine, "flushes")
        found.append(
            DiskFigures(
                name=name,
                write_mb_s=total(mine, "disk_write_bytes") / seconds / BYTES_PER_MB,
                read_mb_s=total(mine, "disk_read_bytes") / seconds / BYTES_PER_MB,
                busy_share=total_s(mine, "disk_busy_s") / seconds,
                queue=total_s(mine, "disk_queue_s") / seconds,
                op_ms=1e3 * total_s(mine, "disk_op_s") / ops if ops else None,
                flush_ms=1e3 * total_s(mine, "flush_s") / flushes if flushes else None,
            )
        )
    return found


def shares(found: Sequence[HostFigures]) -> list[Share]:
    """How much of each machine's limits was used, by the names of those of the lab's own machine; the largest of each name."""
    told: dict[str, Share] = {}

    def add(name: str, value: float, explanation: str) -> None:
        if name not in told or value > told[name].value:
            told[name] = Share(name=name, value=value, explanation=explanation)

    for host in found:
        where = f"on {host.name}"
        busy = host.cpu_share * host.cores
        add(
            "cpu",
            host.cpu_share,
            f"{busy:.2f} of {host.cores} cores were busy {where} (the system {host.system_cpu_share * host.cores:.2f})",
        )
        limit = None if host.limits is None else host.limits.disk_write_mb_s
        written = max((disk.write_mb_s for disk in host.disks), default=0.0)
        if limit:
            add("disk_write", written / limit, f"{written:,.1f} of {limit:,.0f} MB/s were written {where}")
    return sorted(told.values(), key=lambda one: -one.value)


def series(rows: Sequence[Row], lined_up: Series) -> Mapping[str, Series]:
    """Name -> what its machine did, on the axis of the trial's intervals; with the columns of `EXTRA` that only agents tell."""
    place = {int(interval): at for at, interval in enumerate(lined_up.interval)}
    found: dict[str, Series] = {}
    for name in sorted({str(row["host"]) for row in rows}):
        mine = [row for row in rows if row["host"] == name]
        values: dict[str, Values] = lined_up_resources(mine, place, len(lined_up), EXTRA)
        found[name] = Series(lined_up.interval, lined_up.start_s, lined_up.duration_s, values)
    return found
