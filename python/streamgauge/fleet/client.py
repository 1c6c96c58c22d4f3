"""The client of the worker API (docs/worker-api.md)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from streamgauge.fleet.redaction import redacted, secrets_in
from streamgauge.model.messages import (
    ClockPort,
    ClockSamples,
    Counters,
    HostSample,
    Info,
    IntervalsPage,
    Message,
    PhaseBegin,
    TrialStatus,
)
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
JUDGE_TIMEOUT_S = 120.0
INTERVALS_PER_REQUEST = 50
"""Histograms make an interval some tens of kB; this many keep an answer around one MB."""

MessageType = TypeVar("MessageType", bound=Message)


class WorkerClient:
    """Calls one worker. Safe to use from several threads."""

    def __init__(
        self, address: str, *, token: str | None = None, encryption: ssl.SSLContext | None = None
    ) -> None:
        """`token` goes with every request; `encryption` says which certificates are trusted (fleet.trust)."""
        self.address = address
        self._token, self._encryption = token, encryption
        self._secrets: frozenset[str] = frozenset()
        """What the worker was sent in confidence: none of it is taken over from what it says."""
        self._http = httpx.Client(
            base_url=f"{'http' if encryption is None else 'https'}://{address}",
            headers={} if token is None else {"authorization": f"Bearer {token}"},
            verify=True if encryption is None else encryption,
            timeout=httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            # The worker is addressed directly: a proxy from the environment must not come between.
            trust_env=False,
        )

    def another(self) -> WorkerClient:
        """Another client of the same worker, with connections of its own."""
        return WorkerClient(self.address, token=self._token, encryption=self._encryption)

    def close(self) -> None:
        """Closes the connections. Calls that wait in other threads fail with WorkerLost."""
        self._http.close()

    def info(self) -> Info:
        """What the worker is."""
        return self._read(Info, self._call("GET", "/v1/info"))

    def create_topics(
        self, system: Mapping[str, Any], topics: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> None:
        """Creates topics and returns when every partition has a leader."""
        body = {"system": dict(system), "topics": [dict(topic) for topic in topics], "timeout_s": timeout_s}
        self._call("POST", "/v1/admin/create-topics", body, timeout_s=timeout_s + REQUEST_TIMEOUT_S)

    def delete_topics(self, system: Mapping[str, Any], topics: Sequence[str]) -> None:
        """Deletes topics; those that do not exist are no error."""
        body = {"system": dict(system), "topics": list(topics)}
        self._call("POST", "/v1/admin/delete-topics", body, timeout_s=60.0)

    def describe(self, system: Mapping[str, Any], topics: Sequence[str]) -> dict[str, Any]:
        """What the live system says of itself and of the topics."""
        body = {"system": dict(system), "topics": list(topics)}
        return self._call("POST", "/v1/admin/describe", body, timeout_s=60.0)

    def create_trial(self, trial: Mapping[str, Any]) -> TrialStatus:
        """Creates a trial; readiness is proven in the background."""
        return self._status(self._call("POST", "/v1/trials", trial, timeout_s=60.0))

    def status(self, trial: str) -> TrialStatus:
        """Where the trial is."""
        return self._status(self._call("GET", f"/v1/trials/{trial}"))

    def start(self, trial: str, delay_ms: int) -> TrialStatus:
        """Starts the schedule after a delay."""
        return self._start(trial, {"delay_ms": delay_ms})

    def start_at(self, trial: str, at_ns: int) -> TrialStatus:
        """Starts the schedule at an instant of the worker's own CLOCK_MONOTONIC."""
        return self._start(trial, {"at_ns": at_ns})

    def _start(self, trial: str, body: Mapping[str, Any]) -> TrialStatus:
        return self._status(self._call("POST", f"/v1/trials/{trial}/start", body))

    def _status(self, answer: Mapping[str, Any]) -> TrialStatus:
        status = self._read(TrialStatus, answer)
        if status.error is None:
            return status
        return status.model_copy(update={"error": redacted(status.error, self._secrets)})

    def set_rate(self, trial: str, rate_msgs_s: float) -> None:
        """Another rate of all the worker's producers together."""
        self._call("POST", f"/v1/trials/{trial}/rate", {"rate_msgs_s": rate_msgs_s})

    def probe_clocks(self, key: int, peers: Sequence[str], period_ms: int) -> int:
        """Lets the worker exchange probes with the clock probes of others; the UDP port of its own."""
        body = {"key": key, "peers": list(peers), "period_ms": period_ms}
        return self._read(ClockPort, self._call("POST", "/v1/clock", body)).port

    def clock_samples(self, since: int) -> tuple[int, list[tuple[int, int, int, int, int]]]:
        """Exchanges from a number on: (peer, t1, t2, t3, t4); and the number of the next."""
        found = self._read(ClockSamples, self._call("GET", f"/v1/clock?since={since}"))
        return found.next, found.samples

    def set_clocks(self, trial: str, clocks: Sequence[Mapping[str, Any]]) -> None:
        """Tells how far the clocks of other workers' producers are ahead."""
        self._call("POST", f"/v1/trials/{trial}/clocks", {"clocks": list(clocks)})

    def judge(self, books: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The audit over the books of several workers."""
        return self._call("POST", "/v1/judge", {"books": list(books)}, timeout_s=JUDGE_TIMEOUT_S)

    def stop_schedule(self, trial: str, at_s: float | None = None) -> None:
        """Ends the schedule at a time on its axis, or now."""
        self._call("POST", f"/v1/trials/{trial}/stop", {} if at_s is None else {"at_s": at_s})

    def begin_phase(self, trial: str, name: str, from_s: float | None = None) -> float:
        """Begins a phase at a place on the schedule's axis, or at the next whole interval that is far enough
        away; where that is."""
        body: dict[str, Any] = {"name": name} if from_s is None else {"name": name, "from_s": from_s}
        answer = self._call("POST", f"/v1/trials/{trial}/phases", body)
        return self._read(PhaseBegin, answer).from_s

    def pause(self, trial: str, subscription: str) -> None:
        """The subscription stops fetching."""
        self._call("POST", f"/v1/trials/{trial}/subscriptions/{subscription}/pause", {})

    def resume(self, trial: str, subscription: str) -> None:
        """The subscription goes on where it stopped."""
        self._call("POST", f"/v1/trials/{trial}/subscriptions/{subscription}/resume", {})

    def counters(self, trial: str) -> Counters:
        """What was counted so far."""
        return self._read(Counters, self._call("GET", f"/v1/trials/{trial}/counters"))

    def renew_lease(self, trial: str, timeout_s: float) -> None:
        """Says that the lab is still there."""
        self._call("POST", f"/v1/trials/{trial}/lease", {}, timeout_s=timeout_s)

    def intervals(self, trial: str, since: int) -> IntervalsPage:
        """Complete intervals from `since` on, a bounded number of them."""
        path = f"/v1/trials/{trial}/intervals?since={since}&limit={INTERVALS_PER_REQUEST}"
        return self._read(IntervalsPage, self._call("GET", path))

    def finish(self, trial: str, drain_s: float, quiet_s: float) -> dict[str, Any]:
        """Drains, stops and audits; the answer as it came."""
        body = {"drain_s": drain_s, "quiet_s": quiet_s}
        # The audit of many messages comes on top of the drain.
        return self._call("POST", f"/v1/trials/{trial}/finish", body, timeout_s=drain_s + 60.0)

    def abort(self, trial: str) -> None:
        """Stops the trial at once, without an audit."""
        self._call("POST", f"/v1/trials/{trial}/abort", {})

    def host(self, ports: Sequence[int], within_s: float) -> HostSample:
        """A moment of an agent's machine, its probes at work; with the processes that listen on these ports."""
        path = f"/v1/host?probes=true&ports={','.join(map(str, ports))}"
        return self._read(HostSample, self._call("GET", path, timeout_s=within_s))

    def probe_host(
        self, within_s: float, write_bytes: int | None = None, fsync_s: int | None = None
    ) -> dict[str, Any]:
        """What an agent's machine can do; `write_bytes`: how much is written to each of its disks, some seconds' worth without; `fsync_s`: for how long each
        is synced, half a second without."""
        asked = {
            key: value for key, value in (("bytes", write_bytes), ("fsync_s", fsync_s)) if value is not None
        }
        return self._call("POST", "/v1/host/probe", asked, timeout_s=within_s)

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        self._secrets = self._secrets.union(secrets_in(body))
        within_s = timeout_s or REQUEST_TIMEOUT_S
        timeout = httpx.Timeout(within_s, connect=min(CONNECT_TIMEOUT_S, within_s))
        try:
            answer = self._http.request(method, path, json=body, timeout=timeout)
        except httpx.TimeoutException:
            what = f"worker {self.address} did not answer {method} {path} within {timeout.read:g} s"
            raise WorkerLost(what) from None
        except (httpx.HTTPError, RuntimeError) as error:
            # RuntimeError is what a client raises that another thread has closed.
            raise WorkerLost(f"worker {self.address} is gone ({error or type(error).__name__})") from None
        if answer.is_success:
            return self._object(answer, path)
        raise self._refusal(answer)

    def _object(self, answer: httpx.Response, path: str) -> dict[str, Any]:
        try:
            value = answer.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise WorkerLost(f"worker {self.address} answered {path} with something that is no JSON object")
        return value

    def _refusal(self, answer: httpx.Response) -> WorkerRefused:
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            # A worker says no more than that to those it does not know.
            return WorkerRefused(
                answer.status_code, "unauthorized", "it did not accept the token (key token_file)", None
            )
        try:
            error = answer.json()["error"]
            told = redacted(str(error["message"]), self._secrets)
            return WorkerRefused(answer.status_code, str(error["code"]), told, error.get("field"))
        except (ValueError, KeyError, TypeError, AttributeError):
            text = redacted(answer.text, self._secrets)[:200].strip() or "no explanation"
            return WorkerRefused(answer.status_code, "unknown", text, None)

    def _read(self, model: type[MessageType], value: Mapping[str, Any]) -> MessageType:
        try:
            return model.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(step) for step in first["loc"])
            raise WorkerLost(
                f"worker {self.address} gave an answer that breaks the worker API: {place}: {first['msg']}"
            ) from None
