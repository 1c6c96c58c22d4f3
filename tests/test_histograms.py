"""Histograms are read and merged exactly."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from sample_run import encode
from streamgauge.model.percentiles import Beyond, curve, latency
from streamgauge.vocabulary.histograms import (
    HistogramError,
    decode,
    empty,
    merge,
    rank_of,
)
from streamgauge.vocabulary.histograms import recorded as histogram_of


def reference(values: list[int], digits: int = 3, highest: int = 3_600_000_000_000) -> HdrHistogram:
    histogram = HdrHistogram(1, highest, digits)
    for value in values:
        histogram.record_value(value)
    return histogram


def recorded(histogram: HdrHistogram) -> dict[int, int]:
    return {
        int(item.value_iterated_to): int(item.count_at_value_iterated_to)
        for item in histogram.get_recorded_iterator()
    }


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0],
        [1, 1, 2],
        [2047, 2048, 2049, 4095, 4096],
        [5_000, 7_000_000, 3_599_999_999_999],
        [int(value) for value in np.random.default_rng(3).lognormal(13.0, 2.0, 3000)],
    ],
    ids=["empty", "zero", "small", "bucket edges", "extremes", "log-normal"],
)
def test_decodes_what_the_hdrhistogram_package_encodes(values: list[int]) -> None:
    histogram = reference(values)
    ours = decode(base64.b64decode(histogram.encode()))
    lower = ours.layout.lower_ends(ours.indices)
    theirs = {
        int(histogram.get_lowest_equivalent_value(value)): count
        for value, count in recorded(histogram).items()
    }
    assert dict(zip(lower.tolist(), ours.counts.tolist(), strict=True)) == theirs
    assert ours.count == len(values)
    if values:
        assert ours.max == histogram.get_max_value()
        assert ours.mean == pytest.approx(histogram.get_mean_value())


def test_decodes_five_digits_in_microseconds_as_other_tools_write_them() -> None:
    histogram = reference([1, 950, 43_000_000], digits=5, highest=60_000_000)
    assert decode(base64.b64decode(histogram.encode())).max == histogram.get_max_value()


def test_our_own_encoder_for_tests_is_read_by_the_package() -> None:
    values = np.random.default_rng(5).integers(0, 10**10, 500)
    theirs = HdrHistogram.decode(base64.b64encode(encode(values)))
    assert recorded(theirs) == recorded(reference(values.tolist()))


def test_merging_gives_the_distribution_of_all_samples_together() -> None:
    random = np.random.default_rng(7)
    parts = [random.lognormal(12 + part, 1.0, 400).astype(np.int64) for part in range(5)]
    merged = merge(decode(encode(part)) for part in parts)
    together = decode(encode(np.concatenate(parts)))
    assert merged.indices.tolist() == together.indices.tolist()
    assert merged.counts.tolist() == together.counts.tolist()


def test_percentiles_bound_the_exact_ones_by_a_thousandth() -> None:
    values = np.sort(np.random.default_rng(11).lognormal(13.5, 1.5, 20_000).astype(np.int64))
    histogram = decode(encode(values))
    for percent in (0.0, 10.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 100.0):
        exact = float(values[rank_of(percent, len(values)) - 1])
        found = histogram.percentile(percent)
        assert found is not None
        assert exact <= found <= exact * 1.001 + 1


def test_a_rank_is_not_fooled_by_binary_fractions() -> None:
    assert rank_of(99.9, 1000) == 999
    assert rank_of(99.99, 10_000) == 9999
    assert rank_of(50.0, 1) == 1
    assert rank_of(0.0, 10) == 1
    assert rank_of(99.0, 10**9) == 990_000_000


def test_share_above_counts_samples_beyond_a_value() -> None:
    histogram = decode(encode(np.array([1_000_000] * 75 + [9_000_000] * 25)))
    assert histogram.share_above(5_000_000) == 0.25
    assert empty().share_above(1) == 0.0


def test_an_empty_histogram_has_no_figures() -> None:
    figures = latency(empty())
    assert figures.count == 0
    assert figures.p50 is None
    assert figures.max is None
    assert curve(empty()) == []


def test_samples_beyond_the_range_push_percentiles_up_and_are_counted() -> None:
    histogram = decode(encode(np.full(98, 2_000_000)))
    figures = latency(histogram, Beyond(overflow=2, max_ns=4_000_000_000_000))
    assert figures.count == 100
    assert figures.p95 == pytest.approx(2.0, rel=1e-3)
    assert figures.p99 is None, "the 99th of 100 samples lies beyond the range, so no number is true"
    assert figures.max == 4_000_000.0
    assert latency(histogram, Beyond(overflow=2)).max == 3_600_000.0


def test_negative_samples_rank_below_everything() -> None:
    histogram = decode(encode(np.array([1_000_000, 5_000_000])))
    figures = latency(histogram, Beyond(negative=2, min_ns=-70_000))
    assert figures.count == 4
    assert figures.min == -0.07
    assert figures.p50 is None
    assert figures.p75 == pytest.approx(1.0, rel=1e-3)
    assert latency(histogram, Beyond(negative=1)).min is None


def test_a_curve_lies_on_one_grid_and_ends_with_the_largest_sample() -> None:
    histogram = decode(encode(np.arange(1, 1001) * 1_000_000))
    values = curve(histogram)
    assert len(values) == 3 * 24 + 1, "three decades for a thousand samples"
    assert values == sorted(values)
    assert values[24] == pytest.approx(900, rel=2e-3), "one decade up is the 90th percentile"
    assert values[48] == pytest.approx(990, rel=2e-3)
    assert histogram.max is not None
    assert values[-1] == histogram.max / 1e6


def compressed(plain: bytes) -> bytes:
    packed = zlib.compress(plain)
    return struct.pack(">ii", 0x1C849314, len(packed)) + packed


def plain(body: bytes, digits: int = 3, length: int | None = None) -> bytes:
    told = len(body) if length is None else length
    return struct.pack(">iiiiqqd", 0x1C849313, told, 0, digits, 1, 3_600_000_000_000, 1.0) + body


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"", "at least 8 bytes"),
        (b"garbage!garbage!", "cookie"),
        (compressed(plain(b"\x02"))[:-3], "promises"),
        (struct.pack(">ii", 0x1C849314, 4) + b"\x00\x01\x02\x03", "cannot be read"),
        (compressed(b"\x00" * 50), "cookie"),
        (compressed(plain(b"\x02", digits=9)), "layout"),
        (compressed(plain(b"\x02", length=10)), "promises 10"),
        (compressed(plain(b"\x80")), "middle of a number"),
        (compressed(plain(b"\xff" * 8 + b"\x01")), "2\\^55"),
        (compressed(plain(b"\xff\xff\xff\xff\xff\x01")), "more than any layout"),
    ],
)
def test_damage_is_named(payload: bytes, complaint: str) -> None:
    with pytest.raises(HistogramError, match=complaint):
        decode(payload)


def test_different_layouts_do_not_add_up() -> None:
    other = decode(base64.b64decode(reference([5], digits=2).encode()))
    with pytest.raises(HistogramError, match="different layouts"):
        merge([other, decode(encode(np.array([5])))])


def test_percentiles_at_once_are_those_one_by_one() -> None:
    values = np.random.default_rng(3).lognormal(13.0, 2.0, 4321).astype(np.int64)
    found = histogram_of(values, np.ones(len(values), dtype=np.int64))
    percents = [0.0, 0.01, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0]
    assert found.percentiles(percents) == [found.percentile(percent) for percent in percents]
    assert empty().percentiles(percents) == [None] * len(percents)
