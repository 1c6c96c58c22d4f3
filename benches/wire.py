"""What the wire says of a latency: from a client's segment to the server's next one, read off the loopback device.

Clients time themselves, each with its own threads between the socket and the clock. The wire is the same for all of them.
"""

from __future__ import annotations

import socket
import statistics
import struct
import threading
import time
from types import TracebackType

ETH_P_IP = 0x0800
ETHERNET_BYTES, TCP_BYTES_MIN = 14, 20
HEADERS_BYTES = 128
SO_TIMESTAMPNS = 35
"""Linux: the kernel's receive time comes along, as a struct timespec."""
TIMESPEC = struct.Struct("@qq")
PACKET_INCOMING = 0
"""The loopback device shows each packet twice, going out and coming in: one of them is enough."""
BUFFER_BYTES = 32 << 20
WARM_UP_S = 4.0


class Tap:
    """Listens for the time of the block; `p50_ms` afterwards. Without the right to listen (CAP_NET_RAW) there is none."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.p50_ms: float | None = None
        self._took_ms: list[float] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Tap:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
        except PermissionError:
            print("the wire is not listened to: that needs root (CAP_NET_RAW)")
            return self
        self._socket.bind(("lo", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.settimeout(0.2)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        self._socket.close()
        self.p50_ms = statistics.median(self._took_ms) if self._took_ms else None

    def _listen(self) -> None:
        began = time.monotonic()
        asked: dict[int, int] = {}
        while not self._ended.is_set():
            try:
                packet, ancillary, _, address = self._socket.recvmsg(HEADERS_BYTES, 64)
            except TimeoutError:
                continue
            if address[2] != PACKET_INCOMING or not ancillary or time.monotonic() - began < WARM_UP_S:
                continue
            ip_bytes = (packet[ETHERNET_BYTES] & 0x0F) * 4
            tcp = ETHERNET_BYTES + ip_bytes
            if packet[ETHERNET_BYTES + 9] != socket.IPPROTO_TCP or len(packet) < tcp + TCP_BYTES_MIN:
                continue
            source, target = struct.unpack_from("!HH", packet, tcp)
            total_bytes = struct.unpack_from("!H", packet, ETHERNET_BYTES + 2)[0]
            if total_bytes - ip_bytes - (packet[tcp + 12] >> 4) * 4 <= 0:
                continue
            seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2][: TIMESPEC.size])
            now_ns = seconds * 1_000_000_000 + nanoseconds
            if target == self.port:
                # Of what is under way together, the answer is to the first.
                asked.setdefault(source, now_ns)
            elif source == self.port and (since_ns := asked.pop(target, None)) is not None:
                self._took_ms.append((now_ns - since_ns) / 1e6)
