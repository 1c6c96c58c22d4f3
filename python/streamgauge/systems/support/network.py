"""Networks of nodes that can be cut: each node of a running system in a network namespace of its own (namespaces(7)).

The namespaces hang on a switch, a bridge in a namespace of its own, to which the lab and its workers have a port too:

    lab and workers  198.18.N.254 --- switch --- 198.18.N.1   node 1
                                         +------ 198.18.N.2   node 2

To cut a node's network its port is taken off the switch: what it sends and what is sent to it vanishes without a word,
and processes on the node still reach each other. 198.18.0.0/15 is set aside for measurements (RFC 2544, appendix C.2.2).

Nothing here has a name that outlives the lab: each namespace is held by a small process that ends when its standard
input does, which is the lab's end however it comes, and the kernel removes a namespace, with its half of every pair of
devices and so the other half, when no process is in it any more.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgauge.systems.support import privileges
from streamgauge.systems.support.processes import LOOPBACK
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError

PREFIX = "198.18"
LAB_HOST = 254
NODES_MAX = 32
SUBNETS = 256
PROGRAMS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
"""What is needed, and the Debian package that has it."""
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
"""`ip` is often beside the PATH of users."""
WITHIN_S = 20.0
HOLD = "echo ready; read -r _"
"""What a process does that holds a namespace: it waits for the end of its standard input."""


@dataclass(frozen=True)
class OnAddress:
    """All nodes on one address of this machine: there is no network to cut. Beyond loopback clients alone are served: what
    the nodes say to each other stays on loopback, where all of them are.
    """

    address: str

    @property
    def shared_host(self) -> str:
        """See Placement."""
        return LOOPBACK

    def host(self, node: int) -> str:  # noqa: ARG002
        """The address of a node (1, 2, ...) for clients."""
        return self.address

    def inside(self, node: int) -> str:  # noqa: ARG002
        """See Placement."""
        return LOOPBACK

    def command(self, node: int, command: Sequence[str]) -> list[str]:  # noqa: ARG002
        """A command as it is started on a node."""
        return list(command)


ON_LOOPBACK = OnAddress(LOOPBACK)


def is_here(address: str) -> bool:
    """Whether HOST:PORT is on this machine; False where the name does not resolve."""
    host = address.rpartition(":")[0].strip("[]") or address
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    for one in found:
        with contextlib.suppress(ValueError):
            own_address(one)
            return True
    return False


def own_address(text: str) -> OnAddress:
    """An address of this machine on which systems can listen. Raises ValueError with what it is instead."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("is no IP address") from None
    if address.is_unspecified:
        # Clients are told where the nodes are: that must be somewhere.
        raise ValueError("is every address and so none that clients could be told")
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((text, 0))
        except OSError:
            raise ValueError("is no address of this machine (ip address show)") from None
    return OnAddress(text)


def missing() -> str | None:
    """One sentence on what this machine lacks to have such networks; None when nothing."""
    for program, package in PROGRAMS.items():
        if _found(program) is None:
            return f"there is no program '{program}' (apt-get install {package})"
    needed = (privileges.SYS_ADMIN, privileges.NET_ADMIN)
    lacking = [name for name, number in needed if not privileges.has(number)]
    if lacking:
        how = (
            "start the container with --cap-add " + " --cap-add ".join(lacking)
            if os.geteuid() == 0
            else "run it as root"
        )
        return f"network namespaces need the {'capability' if len(lacking) == 1 else 'capabilities'} {' and '.join(lacking)}: {how}"
    if not Path("/proc/self/ns/net").exists():
        return "this kernel has no network namespaces (CONFIG_NET_NS)"
    return None


class Namespaces:
    """The networks of one running system's nodes. Start it before the system, stop it after."""

    def __init__(self, nodes: int) -> None:
        assert 1 <= nodes <= NODES_MAX, "clusters of one machine are small"
        self._nodes = nodes
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._subnet = ""
        self._device = f"sg{os.getpid()}"
        """The lab's end: one network at a time per lab, and a name that says whose."""

    def start(self) -> None:
        """Makes namespaces and devices. Raises SystemFailure with what was said; nothing is left then."""
        try:
            self._subnet = _free_subnet(_ip("-4", "-o", "addr", "show") + _ip("-4", "route", "show"))
            for name in ("switch", *(self._name(node) for node in self._all())):
                self._holders[name] = _hold(name)
            self._inside("switch", ["link add br0 type bridge", "link set br0 up"])
            for node in self._all():
                self._plug(f"port{node}", "eth0", self._pid(self._name(node)))
                self._inside(
                    self._name(node),
                    ["link set lo up", f"addr add {self.host(node)}/24 dev eth0", "link set eth0 up"],
                )
            self._plug("lab", self._device, os.getpid())
            _batch(
                [_program("ip")],
                [f"addr add {self.shared_host}/24 dev {self._device}", f"link set {self._device} up"],
            )
        except BaseException:
            self.stop()
            raise

    def _all(self) -> range:
        return range(1, self._nodes + 1)

    @staticmethod
    def _name(node: int) -> str:
        return f"node-{node}"

    def _pid(self, name: str) -> int:
        return self._holders[name].pid

    def _plug(self, port: str, device: str, pid: int) -> None:
        """A pair of devices: one end a port of the switch, the other in the namespace of a process."""
        self._inside(
            "switch",
            [f"link add {port} type veth peer name {device} netns {pid}", f"link set {port} master br0 up"],
        )

    def _inside(self, name: str, lines: Sequence[str]) -> None:
        _batch([*self._enter(name), _program("ip")], lines)

    def _enter(self, name: str) -> list[str]:
        return [_program("nsenter"), f"--net=/proc/{self._pid(name)}/ns/net"]

    @property
    def shared_host(self) -> str:
        """The lab's own port on the switch: what is of no node is where the lab is."""
        return f"{self._subnet}.{LAB_HOST}"

    def host(self, node: int) -> str:
        """The address of a node (1, 2, ...)."""
        return f"{self._subnet}.{node}"

    def inside(self, node: int) -> str:
        """See Placement: no one else is on this network."""
        return self.host(node)

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """A command as it is started on a node: nsenter becomes it, so that the process id stays."""
        return [*self._enter(self._name(node)), *command]

    def cut(self, nodes: Iterable[int]) -> None:
        """Takes nodes off the switch, all at once. Raises SystemFailure."""
        self._inside("switch", [f"link set port{node} nomaster" for node in nodes])

    def heal(self, nodes: Iterable[int]) -> None:
        """Puts nodes back on the switch. Raises SystemFailure."""
        self._inside("switch", [f"link set port{node} master br0" for node in nodes])

    def stop(self) -> None:
        """Removes everything. Processes that are still on a node keep its namespace until they end. Idempotent."""
        with contextlib.suppress(SystemFailure):
            if self._holders:
                _ip("link", "del", self._device)
        for holder in self._holders.values():
            for end in (holder.stdin, holder.stdout):
                if end is not None:
                    end.close()
        for holder in self._holders.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                holder.wait(WITHIN_S)
            if holder.poll() is None:
                holder.kill()
                holder.wait()
        self._holders.clear()


def open_network(nodes: int) -> Namespaces:
    """Networks for the nodes of a system. Raises SystemInputError that says what is missing where there can be none."""
    lacking = missing()
    if lacking is not None:
        raise SystemInputError(f"the network of a node cannot be cut here: {lacking}")
    network = Namespaces(nodes)
    network.start()
    return network


def _found(program: str) -> str | None:
    return shutil.which(program, path=SEARCHED)


def _program(name: str) -> str:
    return _found(name) or name


def _hold(name: str) -> subprocess.Popen[bytes]:
    """A process in a new network namespace that ends with the lab."""
    try:
        holder = subprocess.Popen(
            [_program("unshare"), "--net", "sh", "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # A Ctrl-C on the terminal must not reach it.
            cwd="/",
        )
    except OSError as error:
        raise SystemFailure(f"a network for {name} could not be made: unshare: {error.strerror}") from None
    assert holder.stdout is not None, "started with a pipe"
    said = holder.stdout.readline().decode(errors="replace").strip()
    if said != "ready":
        holder.kill()
        holder.wait()
        raise SystemFailure(f"a network for {name} could not be made: {said or 'unshare said nothing'}")
    return holder


def _ip(*arguments: str) -> str:
    """What `ip` answers. Raises SystemFailure."""
    return _run([_program("ip"), *arguments], None)


def _batch(command: Sequence[str], lines: Sequence[str]) -> None:
    """Several commands of `ip`, until one fails. Raises SystemFailure."""
    _run([*command, "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: Sequence[str], given: str | None) -> str:
    try:
        done = subprocess.run(
            list(command), input=given, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemFailure(f"{' '.join(command)} failed: {error}") from None
    if done.returncode != 0:
        asked = f" ({'; '.join(given.split(chr(10))[:-1])})" if given else ""
        raise SystemFailure(
            f"the network of the nodes could not be changed: {' '.join(command)}{asked}: {done.stderr.strip()}"
        )
    return done.stdout


def _free_subnet(taken: str) -> str:
    """The first three numbers of a network that no device or route of this machine has. Raises SystemFailure."""
    numbers = list(range(SUBNETS))
    random.shuffle(numbers)
    for number in numbers:
        if f"{PREFIX}.{number}." not in taken:
            return f"{PREFIX}.{number}"
    raise SystemFailure(f"all networks of {PREFIX}.0.0/16 are taken on this machine (ip -4 route)")
