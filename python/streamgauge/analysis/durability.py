"""What an acknowledgement is worth: from doses, stops and cuts to a level. Pure functions of what was measured.

A set of nodes *blocks* when acknowledgements wait for what was done to all of it (its syncs were slowed, its processes
stopped). If an acknowledgement needs q of n nodes, any n - q + 1 of them block and no fewer do; so the size m of the
smallest sets, where all sets of that size block, gives q = n - m + 1. A leader whose own disk is waited for blocks
alone, while others of the same size do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations

from streamgauge.model.durability import (
    Account,
    Cut,
    CutSummary,
    Dose,
    DoseResponse,
    DurabilityResult,
    Finding,
    Kind,
    Scope,
    Slope,
)
from streamgauge.model.power_cut import STRICT_NAMES, describe_place
from streamgauge.vocabulary.format import plural, trimmed
from streamgauge.vocabulary.levels import SYNCED, Level, level_with

WAITS_SLOPE_MIN = 0.5
WAITS_GAP_SHARE_MIN = 0.8
"""Nodes were stopped for a time; acknowledgements waited for them when none came for this share of it."""
WHOLE_FROM = 100.0
"""Rates from here on are told as whole numbers."""
AGAINST_MAX = 12
"""So many findings are told."""
CHANCE_95 = 3.0
"""No event in n trials bounds its probability by 3/n with 95 % confidence."""
Nodes = frozenset[str]


def node_sets(nodes: Sequence[str]) -> list[tuple[str, ...]]:
    """All sets of nodes that are worth looking at, small ones first."""
    return [chosen for size in range(1, len(nodes) + 1) for chosen in combinations(nodes, size)]


def slopes(
    rounds: Sequence[Sequence[Dose]], parts_of_nodes: Mapping[tuple[str, ...], Sequence[str]]
) -> list[Slope]:
    """Per set of nodes the median of the rounds' slopes, each by least squares of p10 on the delay; the load without delay belongs to all
    sets. A round counts for a set that had messages at two delays at least.
    """
    found = []
    for nodes, parts in parts_of_nodes.items():
        told = [
            given
            for given in (_given(doses, parts) for doses in rounds)
            if len({one.delay_ms for one in given}) > 1
        ]
        if not told:
            continue
        each = [_slope(given) for given in told]
        found.append(
            Slope(
                nodes=list(nodes),
                parts=list(parts),
                slope=statistics.median(each),
                slopes=each,
                waits=_waits(each, told),
            )
        )
    return found


def _given(doses: Sequence[Dose], parts: Sequence[str]) -> list[Dose]:
    """Those that these parts were given, and had messages."""
    return [
        dose for dose in doses if dose.acked_msgs and (not dose.parts or sorted(dose.parts) == sorted(parts))
    ]


def _slope(doses: Sequence[Dose]) -> float:
    delays = [dose.delay_ms for dose in doses]
    return statistics.linear_regression(delays, [dose.publish_ms_p10 or 0.0 for dose in doses]).slope


def _waits(each: Sequence[float], rounds: Sequence[Sequence[Dose]]) -> bool | None:
    """Whether an acknowledgement waits for syncs that were slowed: its latency follows the delay, in every round. It does not when half of
    the messages were acknowledged in less time than the longest delay, which no message that waits can be. Where neither
    is so, something else took longer than the syncs.
    """
    if min(each) >= WAITS_SLOPE_MIN:
        return True
    longest = [max(doses, key=lambda dose: dose.delay_ms) for doses in rounds]
    latency_ms = statistics.median(dose.publish_ms_p50 or 0.0 for dose in longest)
    return False if latency_ms < longest[0].delay_ms else None


def needed(blocks: Mapping[Nodes, bool], count: int) -> int | None:
    """Of how many of `count` nodes an acknowledgement waits for at least; 0 when not even all together block. None
    when not all sets of the deciding size were tried.
    """
    everyone = max(blocks, key=len, default=frozenset())
    if len(everyone) != count:
        return None
    if not blocks[everyone]:
        return 0
    for size in range(1, count + 1):
        of_size = [waits for nodes, waits in blocks.items() if len(nodes) == size]
        if len(of_size) == _choose(count, size) and all(of_size):
            return count - size + 1
    return None


def leader(blocks: Mapping[Nodes, bool]) -> str | None:
    """The only node that blocks alone, if there is one among several."""
    alone = [next(iter(nodes)) for nodes, waits in blocks.items() if len(nodes) == 1 and waits]
    several = sum(len(nodes) == 1 for nodes in blocks) > 1
    return alone[0] if several and len(alone) == 1 else None


def conclude(response: DoseResponse, count: int) -> DoseResponse:
    """Puts numbers and words to what doses and stops have shown."""
    by_disk = {frozenset(one.nodes): one.waits for one in response.slopes if one.waits is not None}
    by_stop = {frozenset(one.nodes): one.waits for one in response.stops}
    disks = needed(by_disk, count) if by_disk else None
    copies = needed(by_stop, count) if by_stop else (1 if count == 1 else None)
    return worded(response.model_copy(update={"disks": disks, "copies": copies}), count, leader(by_disk))


def worded(response: DoseResponse, count: int, own: str | None = None) -> DoseResponse:
    """With words for its numbers where it has none yet. `own`: the node whose disk alone is waited for, if there is one."""
    return response.model_copy(
        update={
            "disks_told": response.disks_told or _disks_told(response.disks, count, own),
            "copies_told": response.copies_told or _copies_told(response.copies, count),
        }
    )


def _disks_told(disks: int | None, count: int, own: str | None) -> str:
    if disks is None:
        return "how many disks it waits for was not found out"
    if disks == 0:
        return "waits for no disk"
    if count == 1:
        return "waits for its disk"
    if own is not None and disks < count:
        quorum = f", together with others up to {disks} disks" if disks > 1 else ""
        return f"waits for its own disk ({own} leads){quorum}"
    if disks == count:
        return f"waits for all {count} disks"
    return f"waits for {'a quorum' if 2 * disks > count else 'one'} of the disks ({disks} of {count})"


def _copies_told(copies: int | None, count: int) -> str:
    if count == 1:
        return "there is one copy"
    if copies is None:
        return "how many copies it waits for was not found out"
    if copies == count:
        return f"waits for all {count} copies that are in sync"
    if copies <= 1:
        return "waits for one copy"
    return f"waits for {copies} of {plural(count, 'copy')}"


def _choose(count: int, size: int) -> int:
    return len(list(combinations(range(count), size)))


def summaries(cuts: Sequence[Cut]) -> list[CutSummary]:
    """Per kind and scope, in the order in which they came."""
    groups: dict[tuple[Kind, Scope], list[Cut]] = {}
    for cut in (one for one in cuts if one.replay_of is None):
        groups.setdefault((cut.kind, cut.scope), []).append(cut)
    return [_summary(kind, scope, group) for (kind, scope), group in groups.items()]


def _summary(kind: Kind, scope: Scope, cuts: list[Cut]) -> CutSummary:
    strict = [cut for cut in cuts if is_strict(cut)]
    told = [cut for cut in cuts if cut.conclusive and not is_strict(cut)]
    lossy = [cut for cut in told if cut.lost]
    serving = [cut.serving_s - cut.at_s for cut in cuts if cut.serving_s is not None]
    gone = [cut.unavailable_s for cut in cuts if cut.unavailable_s is not None]
    return CutSummary(
        kind=kind,
        scope=scope,
        cuts=len(cuts),
        conclusive=len(told),
        with_loss=len(lossy),
        refused=sum(bool(cut.refused) for cut in told),
        strict_names=sum(cut.conclusive for cut in strict),
        strict_names_with_loss=sum(bool(cut.lost or cut.refused) for cut in strict),
        acked=sum(cut.acked for cut in told),
        lost=sum(cut.lost for cut in told),
        lost_max=max((cut.lost for cut in told), default=0),
        window_ms_max=max((cut.window_ms for cut in lossy if cut.window_ms is not None), default=None),
        duplicated=sum(cut.duplicated for cut in told),
        reordered=sum(cut.reordered for cut in told),
        corrupted=sum(cut.corrupted for cut in told),
        serving_s_median=statistics.median(serving) if serving else None,
        unavailable_s_median=statistics.median(gone) if gone else None,
        unavailable_s_max=max(gone, default=None),
        loss_probability_max=(
            min(1.0, CHANCE_95 / len(told))
            if told and not lossy and not any(cut.refused for cut in told)
            else None
        ),
        inconclusive=next((cut.inconclusive for cut in cuts if cut.inconclusive is not None), None),
    )


def is_strict(cut: Cut) -> bool:
    """Whether names were kept as POSIX promises them and no more: what such a cut takes, ext4 and XFS keep."""
    return cut.power is not None and cut.power.survivors == STRICT_NAMES


def judged(result: DurabilityResult) -> DurabilityResult:
    """The result with its summaries and its finding."""
    found = summaries(result.cuts)
    response = None if result.response is None else worded(result.response, result.nodes)
    told = finding(result.durability.declared, result.nodes, response, result.accounts, found)
    told = told.model_copy(update={"against": against(result.durability.declared, result.cuts)})
    durability = result.durability.model_copy(update={"measured": told.measured})
    return result.model_copy(
        update={"response": response, "summaries": found, "finding": told, "durability": durability}
    )


def finding(
    declared: Level | None,
    count: int,
    response: DoseResponse | None,
    accounts: Sequence[Account],
    found: Sequence[CutSummary],
) -> Finding:
    """The level that the evidence allows: the weakest of what doses, stops and cuts say."""
    sentences: list[str] = []
    majority = count // 2 + 1
    disks = response.disks if response is not None else None
    copies = (response.copies if response is not None else None) or (1 if count == 1 else None)
    if response is not None:
        sentences.append(f"An acknowledgement {response.disks_told}; {response.copies_told}.")
        sentences += _leader_told(response)
        sentences += _unsteady_told(response)
    sentences += _accounts_told(accounts, disks)
    cut = {(one.kind, one.scope): one for one in found}
    sentences += [told for one in found for told in _cut_told(one)]
    survives = _survived(cut.get(("power cut", "all")))
    if any(one.kind == "failed sync" and one.with_loss for one in found):
        survives = False
    synced = _synced(disks, survives, majority)
    one_lost = any(one.with_loss + one.refused for one in found if one.scope == "one" and one.kind != "stop")
    replicated = _replicated(copies, _survived(cut.get(("power cut", "one"))), one_lost, count, majority)
    sentences += _not_shown(disks, copies, synced, replicated)
    measured = _level(replicated, synced)
    if disks is not None and disks > 0 and survives is False:
        sentences.append(
            "It waits for syncs and loses messages all the same: what it syncs is not all that it needs to find them again."
        )
    if disks == 0 and survives:
        sentences.append(
            "No cut has shown a loss, but an acknowledgement waits for no sync: what survived was luck."
        )
    agrees = None if measured is None or declared is None else measured == declared
    sentences.append(_verdict_told(declared, measured, agrees))
    return Finding(declared=declared, measured=measured, agrees=agrees, sentences=sentences)


def _survived(cut: CutSummary | None) -> bool | None:
    """Whether nothing was lost in the conclusive ones of these cuts; None where there was none."""
    return None if cut is None or not cut.conclusive else cut.with_loss + cut.refused == 0


def _synced(disks: int | None, survives: bool | None, majority: int) -> bool | None:
    """Whether enough disks have a message when it is acknowledged: those of a majority, or the one that there is.

    That they have it is claimed only where power was cut and nothing was lost.
    """
    if survives is False or (disks is not None and disks < majority):
        return False
    return survives


def _replicated(
    copies: int | None, survives: bool | None, one_lost: bool, count: int, majority: int
) -> bool | None:
    """Whether a majority has a message when it is acknowledged; claimed only where one node's power was cut and
    nothing was lost.
    """
    if count == 1 or one_lost or (copies is not None and copies < majority):
        return False
    return None if copies is None else survives


def _not_shown(
    disks: int | None, copies: int | None, synced: bool | None, replicated: bool | None
) -> list[str]:
    """What a level cannot be told for."""
    told = []
    if synced is None:
        waits = "" if disks is None else "; that acknowledgements wait for disks does not show it by itself"
        told.append(
            f"Not shown: that messages survive a power cut of all nodes. No such cut was conclusive{waits}."
        )
    if replicated is None:
        why = (
            "how many copies an acknowledgement waits for was not found out"
            if copies is None
            else f"an acknowledgement waits for {plural(copies, 'copy')}, but no power cut of one node was conclusive"
        )
        told.append(f"Not shown: that messages survive the loss of one node: {why}.")
    return told


def _level(replicated: bool | None, synced: bool | None) -> Level | None:
    if replicated is None or synced is None:
        return None
    return level_with(replicated=replicated, fsynced=synced)


def _unsteady_told(response: DoseResponse) -> list[str]:
    """Of which disks doses did not tell whether they are waited for."""
    unclear = [", ".join(one.nodes) for one in response.slopes if one.waits is None]
    if not unclear:
        return []
    return [
        f"Whether it waits for the disks of {' or of '.join(unclear)} was not told by the doses: latencies were longer than the "
        "delay and did not follow it in every round, as on a machine that is busy with something else."
    ]


def _leader_told(response: DoseResponse) -> list[str]:
    """What doses on the leader alone and on the followers alone have shown, where it is known who led."""
    if response.leader is None:
        return []
    alone = next((one for one in response.slopes if one.nodes == [response.leader]), None)
    followers = max(
        (one for one in response.slopes if response.leader not in one.nodes),
        key=lambda one: len(one.nodes),
        default=None,
    )
    if alone is None or followers is None:
        return []
    return [
        f"{response.leader} led: with the syncs of the leader alone slowed the publish {response.percentile} grew by {alone.slope:.2f} ms per ms, "
        f"with those of the followers alone ({', '.join(followers.nodes)}) by {followers.slope:.2f}."
    ]


def _accounts_told(accounts: Sequence[Account], disks: int | None) -> list[str]:
    told = []
    busiest = max(accounts, key=lambda account: account.bytes_written, default=None)
    if busiest is not None and busiest.acked_msgs:
        syncs = f"{busiest.syncs_s:,.0f}" if busiest.syncs_s >= WHOLE_FROM else trimmed(busiest.syncs_s)
        rate = f"{syncs} syncs per second for {busiest.acked_msgs / busiest.seconds:,.0f} acknowledged messages per second"
        told.append(
            f"The disk of {busiest.part} saw {rate}; {busiest.unsynced_bytes:,} bytes were written and not synced when "
            "everything had been acknowledged."
        )
        if disks == 0 and busiest.syncs >= busiest.batches > 0:
            told.append("It syncs as often as it gets batches, and does not wait for it.")
    return told


def _cut_told(one: CutSummary) -> list[str]:
    detail = {
        "power cut": "",
        "failed sync": " whose data was dropped, with a power cut after it,",
        "kill": " (SIGKILL, disks kept)",
        "stop": " (SIGSTOP)",
    }[one.kind]
    where = {"one": "of one node", "majority": "of a majority", "all": "of all nodes"}[one.scope]

    def cuts(number: int) -> str:
        return f"{plural(number, one.kind)}{detail} {where}"

    told = []
    if one.conclusive and one.with_loss:
        window = "" if one.window_ms_max is None else f", over up to {one.window_ms_max:,.0f} ms"
        told.append(
            f"{one.with_loss} of {cuts(one.conclusive)} lost acknowledged messages: {one.lost:,} in all, "
            f"{one.lost_max:,} at most{window}."
        )
    elif one.conclusive and not one.refused:
        bound = one.loss_probability_max or 1.0
        confident = (
            f"; with 95 % confidence less than {trimmed(100 * bound)} % of such cuts do" if bound < 1 else ""
        )
        told.append(f"{cuts(one.conclusive)} lost nothing that was acknowledged{confident}.")
    if one.refused:
        told.append(
            f"After {one.refused} of {cuts(one.conclusive)} it did not come back, or not with what it held, and says so itself."
        )
    if one.strict_names:
        told.append(
            f"{one.strict_names_with_loss} of {cuts(one.strict_names)} lost something where a name is kept only when its directory was synced, as "
            "POSIX promises and no more; ext4 and XFS keep it with any sync."
        )
    silent = one.cuts - one.conclusive - one.strict_names
    if silent > 0 and one.inconclusive is not None:
        told.append(f"{silent} of {cuts(one.cuts)} told nothing: {one.inconclusive}.")
    return told


def against(declared: Level | None, cuts: Sequence[Cut]) -> list[str]:
    """What the cuts have shown against a system, each with the file and the operations on it. Losses count where the declared level excludes them."""
    synced = declared in (None, *SYNCED)
    told = []
    replays = {cut.replay_of: cut for cut in cuts if cut.replay_of is not None}
    for cut in (one for one in cuts if one.replay_of is None):
        what = f"cut {cut.number} ({told_of(cut)})"
        lost = f"{what} lost {plural(cut.lost, 'message')}. {_where(cut)}{_again(replays.get(cut.number))}"
        if cut.complaints:
            told.append(
                f"It acknowledges again, but its own check does not pass after {what}: {' | '.join(cut.complaints)}"
            )
        if cut.refused:
            words = " | ".join(cut.refused)
            told.append(f"It {returned(cut)} after {what}: {words}.{_again(replays.get(cut.number))}")
        elif not (synced and cut.lost and cut.conclusive):
            continue
        elif cut.kind == "failed sync":
            told.append(f"It acknowledges what a failed sync has lost: {lost}")
        elif is_strict(cut):
            told.append(f"It relies on names that no sync of a directory kept: {lost}")
        elif cut.kind == "power cut":
            told.append(f"It loses what it has acknowledged: {lost}")
    return told[:AGAINST_MAX]


def returned(cut: Cut) -> str:
    """How the system came back from a cut after which its own words are against it, as the end of a sentence about it."""
    return "does not come back" if cut.failure else "comes back without what it held"


def told_of(cut: Cut) -> str:
    """Kind, scope, survivors, seed and place of a cut."""
    left = "" if cut.power is None else f", survivors: {cut.power.survivors}, seed {cut.power.seed}"
    place = "" if cut.place is None or not cut.place_reached else f", at {describe_place(cut.place)}"
    again = "" if cut.replay_of is None else " again"
    return f"{cut.kind} of {cut.scope}{left}{place}{again}"


def _again(replay: Cut | None) -> str:
    """What the same cut did once more. Chance that is the system's own, and the machine's, is not repeated with its seed."""
    if replay is None:
        return ""
    if replay.refused:
        return f" Replayed with its seed it {returned(replay)}."
    if replay.inconclusive is not None:
        return f" Replayed with its seed it told nothing: {replay.inconclusive}."
    return f" Replayed with its seed it lost {plural(replay.lost, 'message')}."


def _where(cut: Cut) -> str:
    """The file and the operations that explain a loss."""
    if cut.lost_messages:
        return f"{cut.lost_messages[0].told[0].upper()}{cut.lost_messages[0].told[1:]}."
    if cut.power is not None and cut.power.files:
        return f"It was not found among the lost bytes; most was lost of {cut.power.files[0].told}."
    return "The disks lost nothing that was not synced."


def _verdict_told(declared: Level | None, measured: Level | None, agrees: bool | None) -> str:
    meaning = {
        "L1": "a majority of nodes has synced a message before it is acknowledged: it survives a power failure of all of them.",
        "L2": "a majority of nodes has a message before it is acknowledged, in memory: it survives any one node, and not a "
        "power failure that they share.",
        "L3": "a message is synced on one node before it is acknowledged: it survives a power failure, and not the loss of "
        "that disk.",
        "L4": "a message is in the memory of one node when it is acknowledged: a power failure loses it.",
    }
    if measured is None:
        return "The experiments that were made do not tell a level."
    if agrees is None:
        return f"Measured {measured}: {meaning[measured]}"
    if agrees:
        return f"Declared {declared}, and {measured} it is: {meaning[measured]}"
    weaker = "weaker" if measured > (declared or measured) else "stronger"
    return f"Declared {declared}, but measured {measured}, which is {weaker}: {meaning[measured]}"
