"""The client of OMB's worker protocol: paths and bodies as the leader of the OpenMessaging Benchmark sends them.

Any status but 200 is an error; what went wrong is in the worker's log only. `period-stats` is destructive: what it answers is not told again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import httpx
from pydantic import AliasGenerator, BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
SETUP_TIMEOUT_S = 120.0
"""Drivers connect, and groups of consumers come together, before these are answered."""
STOP_TIMEOUT_S = 60.0
STOP_AT_ONCE_TIMEOUT_S = 10.0

AnswerType = TypeVar("AnswerType", bound="OmbAnswer")


class OmbAnswer(BaseModel):
    """Base of what OMB's workers answer: tolerant of additions."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, alias_generator=AliasGenerator(validation_alias=to_camel)
    )


class OmbCounters(OmbAnswer):
    """GET /counters-stats: totals since the last stop-all, probes included."""

    messages_sent: int
    """Acknowledged."""
    messages_received: int


class OmbPeriod(OmbAnswer):
    """GET /period-stats: what was counted and recorded since the last call. Histograms are base64 of HdrHistogram V2 compressed, in us."""

    messages_sent: int
    """Acknowledged."""
    message_send_errors: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    total_messages_sent: int
    total_message_send_errors: int
    total_messages_received: int
    publish_latency: str
    publish_delay_latency: str
    end_to_end_latency: str


class OmbClient:
    """Calls one of OMB's workers. Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url,
            timeout=httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            # The worker is addressed directly: a proxy from the environment must not come between.
            trust_env=False,
        )

    def close(self) -> None:
        """Closes the connections. Calls that wait in other threads fail with WorkerLost."""
        self._http.close()

    def stop_all(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends the load, closes producers, consumers and driver, and forgets the counters."""
        self._post("/stop-all", b"", timeout_s)

    def initialize_driver(self, driver: str) -> None:
        """Gives the worker a driver file (YAML)."""
        self._post("/initialize-driver", driver.encode(), SETUP_TIMEOUT_S)

    def create_consumers(self, subscriptions: Sequence[tuple[str, str]]) -> None:
        """One consumer for each pair of topic and subscription; repeats share the subscription."""
        pairs = [{"topic": topic, "subscription": name} for topic, name in subscriptions]
        self._post("/create-consumers", _json({"topicsSubscriptions": pairs}), SETUP_TIMEOUT_S)

    def create_producers(self, topics: Sequence[str]) -> None:
        """One producer for each entry."""
        self._post("/create-producers", _json(list(topics)), SETUP_TIMEOUT_S)

    def probe_producers(self) -> None:
        """Each producer sends one message of 10 bytes."""
        self._post("/probe-producers", b"", SETUP_TIMEOUT_S)

    def start_load(self, payloads_base64: Sequence[str], rate_msgs_s: float, keys: str) -> None:
        """Sends from now on; `rate_msgs_s` is of all producers of this worker together."""
        body = {
            "payloadData": list(payloads_base64),
            "publishRate": rate_msgs_s,
            "keyDistributorType": keys,
        }
        self._post("/start-load", _json(body), SETUP_TIMEOUT_S)

    def adjust_publish_rate(self, rate_msgs_s: float) -> None:
        """Another rate from now on; below 1 it is 1."""
        self._post("/adjust-publish-rate", _json(rate_msgs_s), REQUEST_TIMEOUT_S)

    def pause_consumers(self) -> None:
        """No consumer takes anything any more, after the message that it has."""
        self._post("/pause-consumers", b"", REQUEST_TIMEOUT_S)

    def resume_consumers(self) -> None:
        """All consumers go on, within a second."""
        self._post("/resume-consumers", b"", REQUEST_TIMEOUT_S)

    def counters(self, timeout_s: float = REQUEST_TIMEOUT_S) -> OmbCounters:
        """Totals so far."""
        return self._get(OmbCounters, "/counters-stats", timeout_s)

    def period(self) -> OmbPeriod:
        """What came since the last call."""
        return self._get(OmbPeriod, "/period-stats", REQUEST_TIMEOUT_S)

    def _post(self, path: str, body: bytes, timeout_s: float) -> None:
        self._call("POST", path, body, timeout_s)

    def _get(self, model: type[AnswerType], path: str, timeout_s: float) -> AnswerType:
        answer = self._call("GET", path, None, timeout_s)
        try:
            return model.model_validate(answer.json())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(step) for step in first["loc"])
            what = f"{place}: {first['msg']}"
        except ValueError:
            what = "it is no JSON"
        raise WorkerLost(
            f"OMB worker {self.url} answered {path} with something that OMB's workers do not answer ({what}): is it one?"
        )

    def _call(self, method: str, path: str, body: bytes | None, timeout_s: float) -> httpx.Response:
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        try:
            answer = self._http.request(method, path, content=body, timeout=timeout)
        except httpx.TimeoutException:
            raise WorkerLost(
                f"OMB worker {self.url} did not answer {method} {path} within {timeout_s:g} s"
            ) from None
        except (httpx.HTTPError, RuntimeError) as error:
            # RuntimeError is what a client raises that another thread has closed.
            raise WorkerLost(f"OMB worker {self.url} is gone ({error or type(error).__name__})") from None
        if answer.status_code != httpx.codes.OK:
            said = " ".join(answer.text.split())[:200] or "no explanation"
            raise WorkerRefused(
                answer.status_code,
                "omb",
                f"OMB worker {self.url} answered {method} {path} with status {answer.status_code} ({said}); its log says why. "
                "If it answers so again, start it anew: a driver that failed to begin cannot be stopped",
                None,
            )
        return answer


def _json(value: Mapping[str, Any] | Sequence[Any] | float) -> bytes:
    return json.dumps(value).encode()
