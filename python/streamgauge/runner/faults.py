"""Makes the faults of a trial at their time, and writes down what was done when.

A thread of its own, so that a fault comes at its time whatever the load's loop does. What it has to say is kept
until the loop asks for it: watchers are called from the main thread alone.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from streamgauge.model.fault import ENDS, FOLLOWERS, LEADER, ON_NETWORK, ON_STORAGE, describe
from streamgauge.model.power_cut import STRICT_NAMES, Place, PowerCut, describe_place
from streamgauge.model.result_asked import FaultAsked
from streamgauge.model.result_special import Fault
from streamgauge.runner.acks import AckWatch
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.base import parts as parts_of
from streamgauge.systems.base.parts import Part
from streamgauge.systems.support.network import Namespaces
from streamgauge.systems.support.powercut import Disks
from streamgauge.vocabulary.choices import SURVIVORS, FaultAction, Survivors
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError

SERVES_WITHIN_S = 180.0
POLL_S = 0.02
PLACE_WITHIN_S = 60.0
"""How long a cut waits for the operation at which it is to come."""
PLACE_POLL_S = 0.005
BROKEN_BY: tuple[FaultAction, ...] = ("kill", "stop", "power-cut", "fsync-error", "disk-full", "cut-network")
"""Faults that last until another action ends them."""


DRAWN: tuple[Survivors, ...] = tuple(kind for kind in SURVIVORS if kind != STRICT_NAMES)
"""What is drawn from for a cut that does not say; names as POSIX promises them are not what an operator's file system keeps."""


class FaultLeg:
    """Makes faults in a running system. Parts are chosen when it is made: what does not exist is refused then. Who
    leads is asked when the fault is due.
    """

    def __init__(
        self,
        running: RunningSystem,
        asked: Sequence[FaultAsked],
        disks: Disks | None = None,
        network: Namespaces | None = None,
        seed: int = 0,
    ) -> None:
        """`disks`: what the system's data is on, `network`: where its nodes are; needed for faults of these alone. `seed`: of what
        power cuts leave.
        """
        self._seed = seed
        self._running = running
        self._disks = disks
        self._network = network
        self._topic: str | None = None
        self._parts = list(running.parts())
        self._asked = list(asked)
        self._targets = {id(fault): self._choose(fault) for fault in asked if fault.target is not None}
        self._broken: dict[str, set[FaultAction]] = {}
        """Part -> the faults that it suffers from."""
        self._made: list[Fault] = []
        self._told: list[str] = []
        self._failure: str | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._watch: AckWatch | None = None
        self._changed: Callable[[], None] = lambda: None

    def _choose(self, fault: FaultAsked) -> list[Part]:
        assert fault.target is not None
        if fault.target in (LEADER, FOLLOWERS):
            self._require_leaders(fault)
            return []
        try:
            parts = parts_of.choose(self._parts, fault.target)
            if fault.action in ON_NETWORK:
                parts = parts_of.on_same_nodes(self._parts, parts)
        except ValueError as error:
            raise SystemInputError(f"--fault {describe(fault)}: {error}") from None
        if fault.action in ("fsync-delay", "fsync-error", "disk-full") and not any(
            part.data for part in parts
        ):
            raise SystemInputError(
                f"--fault {describe(fault)}: {', '.join(part.name for part in parts)} keeps nothing on a disk"
            )
        return parts

    def _require_leaders(self, fault: FaultAsked) -> None:
        """Refuses at once what will not be answered later."""
        if not self._running.knows_leaders:
            raise SystemInputError(
                f"--fault {describe(fault)}: {self._running.name} does not tell which node leads a topic; expected a node's "
                "number, a part's name or all"
            )
        if self._running.nodes == 1 and fault.target == FOLLOWERS:
            raise SystemInputError(f"--fault {describe(fault)}: one node has no followers (--nodes 3)")

    def _led(self, target: str) -> list[Part]:
        """All parts of the node that leads the first partition of the trial's first topic, or of the others. Raises
        SystemFailure when the system does not say.
        """
        assert self._topic is not None, "set before the first fault is due"
        leader = self._running.leader(self._topic)
        if leader is None:
            raise SystemFailure(f"{self._running.name} does not say which node leads {self._topic}")
        parts = parts_of.choose(self._parts, leader)
        if target == LEADER:
            return parts
        return [part for part in self._parts if part not in parts and parts_of.node_of(part) is not None]

    def start(
        self, start_s: float, offset_s: float, watch: AckWatch, changed: Callable[[], None], topic: str
    ) -> None:
        """Begins. `start_s`: CLOCK_MONOTONIC at the schedule's start; `offset_s`: where on its axis the measured
        phase begins. `changed` is called when processes have been started again. `topic`: whose leader is meant.
        """
        self._watch, self._changed, self._topic = watch, changed, topic
        if self._disks is not None and any(fault.survivors == STRICT_NAMES for fault in self._asked):
            self._disks.keep_names(strictly=True)
        watch.start()
        self._spawn(lambda: self._run(start_s, offset_s))

    def stop(self) -> None:
        """Makes no more faults and waits for what is being done. What is broken remains so. Idempotent."""
        self._stop.set()
        for thread in self._threads:
            thread.join(5.0)
        if self._watch is not None:
            self._watch.stop()

    def write_acks(self, path: Path) -> None:
        """Keeps when acknowledgements came, once it has been started."""
        if self._watch is not None:
            self._watch.write(path)

    @property
    def made(self) -> list[Fault]:
        """What was done so far, in order."""
        with self._lock:
            return [fault.model_copy() for fault in self._made]

    @property
    def failure(self) -> str | None:
        """Why a fault could not be made or ended."""
        return self._failure

    def news(self) -> list[str]:
        """What is worth telling since it was asked last."""
        with self._lock:
            told, self._told = self._told, []
        return told

    def still_broken(self) -> list[str]:
        """Names of parts that are down, stopped or cut off."""
        down = {"kill", "power-cut", "stop", "cut-network"}
        return sorted(name for name, faults in self._broken.items() if faults & down)

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="faults", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, start_s: float, offset_s: float) -> None:
        for fault in self._asked:
            due_s = start_s + offset_s + fault.at_s
            if self._stop.wait(max(0.0, due_s - time.monotonic())):
                return
            try:
                self._make(fault, start_s)
            except (SystemFailure, OSError) as error:
                self._failure = f"the fault {describe(fault)} could not be made: {error}"
                return

    def _make(self, fault: FaultAsked, start_s: float) -> None:
        parts = self._now(fault)
        began_s = time.monotonic() - start_s
        if fault.place is not None and not self._reach(fault.place, parts):
            return
        cut = self._do(fault, parts)
        done = Fault(
            asked=fault,
            cut=cut,
            parts=[part.name for part in parts],
            from_s=began_s,
            done_s=time.monotonic() - start_s,
        )
        with self._lock:
            self._made.append(done)
            left = "" if cut is None else f" (survivors: {cut.survivors}, seed {cut.seed})"
            self._told.append(
                f"{fault.action} of {', '.join(done.parts) or 'nothing'} at {began_s:.3f} s{left}"
            )
        if fault.action == "restart":
            self._changed()
            self._spawn(lambda: self._await(parts, done, start_s))

    def _now(self, fault: FaultAsked) -> list[Part]:
        """The parts that a fault hits at this moment."""
        if fault.target in (LEADER, FOLLOWERS):
            return self._led(fault.target)
        return self._targets.get(id(fault)) or self._suffering(fault.action)

    def _suffering(self, action: FaultAction) -> list[Part]:
        """The parts whose faults this action ends."""
        ended = set(ENDS.get(action, ()))
        return [part for part in self._parts if self._broken.get(part.name, set()) & ended]

    def _reach(self, place: Place, parts: Sequence[Part]) -> bool:
        """Waits until a disk stands still at a place; False when the leg ends before. Raises SystemFailure when it does not come to it."""
        assert self._disks is not None, "a trial with faults of disks has disks"
        names = [part.name for part in parts]
        self._disks.hold_at(names, place)
        deadline_s = time.monotonic() + PLACE_WITHIN_S
        while not self._disks.is_held(names):
            late = time.monotonic() > deadline_s
            if late or self._stop.wait(PLACE_POLL_S):
                self._disks.release()
                if late:
                    raise SystemFailure(
                        f"{describe_place(place)} was not reached within {PLACE_WITHIN_S:g} s on the disks of {', '.join(names)}"
                    )
                return False
        return True

    def _do(self, fault: FaultAsked, parts: Sequence[Part]) -> PowerCut | None:
        action = fault.action
        cut: PowerCut | None = None
        if action in ON_STORAGE:
            cut = self._do_on_disks(fault, parts)
        elif action in ON_NETWORK:
            self._do_on_network(fault, parts)
        elif action == "kill":
            parts_of.kill_together(parts)
        elif action == "stop":
            parts_of.pause_together(parts)
        for part in parts:
            if action == "cont":
                part.resume()
            elif action == "restart":
                part.restart()
            suffers = self._broken.setdefault(part.name, set())
            suffers.difference_update(ENDS.get(action, ()))
            if action in ("kill", "power-cut"):
                suffers.discard("stop")  # A process that is gone is not stopped any more.
            if action in BROKEN_BY:
                suffers.add(action)
        return cut

    def _do_on_network(self, fault: FaultAsked, parts: Sequence[Part]) -> None:
        assert self._network is not None, "a trial with faults of the network has one"
        nodes = sorted({node for node in map(parts_of.node_of, parts) if node is not None})
        change = self._network.cut if fault.action == "cut-network" else self._network.heal
        change(nodes)

    def _do_on_disks(self, fault: FaultAsked, parts: Sequence[Part]) -> PowerCut | None:
        assert self._disks is not None, "a trial with faults of disks has disks"
        names = [part.name for part in parts]
        if fault.action == "power-cut":
            seed = random.Random(f"{self._seed} {describe(fault)}").randrange(1 << 32)
            drawn = random.Random(seed).choice(DRAWN)
            survivors = drawn if fault.survivors is None else fault.survivors
            return self._disks.cut_power(parts, survivors, seed)
        if fault.action == "fsync-delay":
            self._disks.set_faults(names, sync_delay_ms=1000 * (fault.amount_s or 0.0))
        elif fault.action == "fsync-error":
            for part in parts:
                part.process.down_on_purpose = True  # To end is one of the right answers to it.
            self._disks.set_faults(names, sync_error="EIO", sync_drops=True, times=1)
        elif fault.action == "disk-full":
            self._disks.set_faults(names, write_error="ENOSPC")
        elif fault.action == "disk-free":
            self._disks.set_faults(names, write_error=None)
        return None

    def _await(self, parts: Sequence[Part], done: Fault, start_s: float) -> None:
        """Waits until restarted parts serve again."""
        deadline_s = time.monotonic() + SERVES_WITHIN_S
        waiting = list(parts)
        while waiting and time.monotonic() < deadline_s and not self._stop.wait(POLL_S):
            waiting = [part for part in waiting if part.waits_for() is not None]
        with self._lock:
            if waiting:
                self._told.append(f"{', '.join(part.name for part in waiting)} did not serve again")
                return
            done.ready_s = time.monotonic() - start_s
            self._told.append(f"{', '.join(done.parts)} served again at {done.ready_s:.3f} s")
        self._changed()
