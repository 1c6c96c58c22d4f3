"""Exact decoding, merging and reading of HdrHistograms.

Workers record with HdrHistogram (3 significant digits, 1 ns to 1 h) and deliver V2 compressed payloads, one
per interval and metric. A trial of ten minutes has thousands of them, so they are decoded with numpy: the
counts arrays are added up, never the percentiles. The format is public (HdrHistogram "V2 encoding"): a
compressed header (cookie 0x1c849314, length), a zlib stream, in it a 40-byte header (cookie 0x1c849313,
payload length, normalizing index offset, significant digits, lowest and highest trackable value, conversion
ratio) and the counts as zig-zag LEB128 numbers, where a negative number -n stands for n empty buckets.

A value v falls into a bucket whose width is at most v / 1000 at 3 digits; results name the bucket's upper end
for percentiles and the maximum, its lower end for the minimum and its middle for the mean, as the Java, Rust
and Python libraries do.
"""

from __future__ import annotations

import functools
import math
import struct
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamgauge.vocabulary.errors import InputError

COOKIE_COMPRESSED = 0x1C849304
COOKIE_V2 = 0x1C849303
COOKIE_WORD_SIZE_MASK = 0xF0
"""The cookies' word size nibble varies between libraries (0x..14, 0x..13 for 8-byte LEB128); it is ignored
when comparing.
"""
HEADER = struct.Struct(">iiiiqqd")
COUNTS_LEN_MAX = 1 << 23
"""More buckets than any sane configuration has (5 digits to 2^63 need 6 million; ours has 33,000): a bound on
what is allocated.
"""
PAYLOAD_BYTES_MAX = COUNTS_LEN_MAX
"""Inflated: a byte per bucket of the largest layout, and more than a worker's 33,000 buckets can need."""
COUNT_MAX = 1 << 40
"""Samples in one histogram: what a thousand histograms of a trial hold together stays within 64 bits."""

KEPT_BUCKETS_MAX = 1 << 21
"""Of the histograms that are kept, 24 bytes each."""
KEPT_OVERHEAD = 32
"""In buckets: what a histogram takes beside them."""

Whole = npt.NDArray[np.int64]


class HistogramError(InputError):
    """A payload is not a histogram that can be read; the message says what was found."""


@dataclass(frozen=True)
class Layout:
    """How values map to buckets. Histograms of one layout add up bucket by bucket."""

    lowest: int
    highest: int
    digits: int

    @functools.cached_property
    def unit_magnitude(self) -> int:
        """Power of two of the smallest distinguishable value."""
        return math.floor(math.log2(self.lowest))

    @functools.cached_property
    def sub_bucket_half_count_magnitude(self) -> int:
        """Power of two of half the number of linear sub-buckets in each exponential bucket."""
        largest_single_unit = 2 * 10**self.digits
        return max(math.ceil(math.log2(largest_single_unit)), 1) - 1

    @functools.cached_property
    def buckets(self) -> int:
        """How many there are: the last exponential bucket holds `highest`."""
        half = self.sub_bucket_half_count_magnitude
        doublings = max(self.highest.bit_length() - (self.unit_magnitude + half + 1), 0)
        return (doublings + 2) << half

    def lower_ends(self, indices: Whole) -> Whole:
        """Lowest value of each bucket."""
        half = np.int64(1) << np.int64(self.sub_bucket_half_count_magnitude)
        bucket = (indices >> self.sub_bucket_half_count_magnitude) - 1
        sub_bucket = (indices & (half - 1)) + half
        first = bucket < 0
        sub_bucket = np.where(first, sub_bucket - half, sub_bucket)
        shift = np.where(first, 0, bucket) + self.unit_magnitude
        return np.asarray(sub_bucket << shift, dtype=np.int64)

    def widths(self, indices: Whole) -> Whole:
        """Number of whole values that share each bucket."""
        bucket = np.maximum((indices >> self.sub_bucket_half_count_magnitude) - 1, 0)
        return np.asarray(np.int64(1) << (bucket + self.unit_magnitude), dtype=np.int64)

    def indices_of(self, values: Whole) -> Whole:
        """The bucket of each value, which is from 0 to `highest` (at most 2^53)."""
        half = self.sub_bucket_half_count_magnitude
        # All values of the first bucket count as if they had its highest bit.
        smallest = np.int64(1) << np.int64(self.unit_magnitude + half)
        bits = np.frexp(np.maximum(values, smallest).astype(np.float64))[1].astype(np.int64)
        bucket = np.maximum(bits - (self.unit_magnitude + half + 1), 0)
        sub_bucket = values >> (bucket + self.unit_magnitude)
        return np.asarray(((bucket + 1) << half) + sub_bucket - (np.int64(1) << half), dtype=np.int64)


OURS = Layout(lowest=1, highest=3_600_000_000_000, digits=3)
"""The layout of the worker's recorders, in ns (docs/worker-api.md)."""


class Histogram:
    """An immutable distribution of non-negative whole values (ns in this project), kept as its buckets that
    are not empty.
    """

    def __init__(self, layout: Layout, indices: Whole, counts: Whole) -> None:
        """`counts[i]` samples (above 0) in bucket `indices[i]`, indices ascending."""
        self.layout = layout
        self.indices = indices
        self.counts = counts
        self.count = int(counts.sum())

    @functools.cached_property
    def _cumulative(self) -> Whole:
        return np.cumsum(self.counts, dtype=np.int64)

    def __len__(self) -> int:
        """Number of samples."""
        return self.count

    @property
    def min(self) -> float | None:
        """Lower end of the first bucket that has samples; None when empty."""
        return float(self.layout.lower_ends(self.indices[:1])[0]) if self.count else None

    @property
    def max(self) -> float | None:
        """Upper end of the last bucket that has samples; None when empty."""
        return self._upper_end(len(self.indices) - 1) if self.count else None

    @property
    def mean(self) -> float | None:
        """Mean with every sample at the middle of its bucket (within 0.05 % at 3 digits); None when empty."""
        if not self.count:
            return None
        middles = self.layout.lower_ends(self.indices) + (self.layout.widths(self.indices) >> 1)
        return float(np.dot(middles.astype(np.float64), self.counts) / self.count)

    def percentile(self, percent: float, beyond: int = 0) -> float | None:
        """Smallest bucket end that at least `percent` % of all samples do not exceed.

        `beyond` samples lie above the histogram's range and count as larger than everything in it; None when
        the percentile falls among them, or when there is no sample.
        """
        total = self.count + beyond
        if not total:
            return None
        rank = rank_of(percent, total)
        if rank > self.count:
            return None
        return self._upper_end(int(np.searchsorted(self._cumulative, rank)))

    def percentiles(self, percents: Iterable[float]) -> list[float | None]:
        """`percentile` of each, all at once."""
        if not self.count:
            return [None for _ in percents]
        ranks = [rank_of(percent, self.count) for percent in percents]
        indices = self.indices[np.searchsorted(self._cumulative, ranks)]
        ends = self.layout.lower_ends(indices) + self.layout.widths(indices) - 1
        return [float(end) for end in ends]

    def share_above(self, value: float) -> float:
        """Share (0-1) of samples in buckets that lie entirely above `value`; 0 when empty."""
        if not self.count:
            return 0.0
        above = self.layout.lower_ends(self.indices) > value
        return float(self.counts[above].sum() / self.count)

    def _upper_end(self, position: int) -> float:
        index = self.indices[position : position + 1]
        return float(self.layout.lower_ends(index)[0] + self.layout.widths(index)[0] - 1)


def empty() -> Histogram:
    """A histogram without samples, in the worker's layout."""
    return Histogram(OURS, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def rank_of(percent: float, total: int) -> int:
    """The 1-based rank of a percentile among `total` sorted samples: ceil, without being fooled by 99.9 / 100
    * 1000 > 999.
    """
    exact = percent / 100.0 * total
    return max(1, math.ceil(exact - max(1e-9, exact * 1e-12)))


class _Kept:
    """The histograms that were read last: each of a trial is wanted several times. Bounded by what they take, whoever wrote them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[bytes, Histogram] = {}
        self._buckets = 0

    def get(self, payload: bytes) -> Histogram | None:
        return self._held.get(payload)

    def put(self, payload: bytes, found: Histogram) -> None:
        with self._lock:
            if payload in self._held or len(found.indices) > KEPT_BUCKETS_MAX // 100:
                return
            self._held[payload] = found
            self._buckets += len(found.indices) + KEPT_OVERHEAD
            while self._buckets > KEPT_BUCKETS_MAX:
                oldest = next(iter(self._held))
                self._buckets -= len(self._held.pop(oldest).indices) + KEPT_OVERHEAD


_kept = _Kept()


def decode(payload: bytes) -> Histogram:
    """Reads one HdrHistogram V2 compressed payload (raw bytes, not base64).

    Raises HistogramError for anything else, with what was found.
    """
    found = _kept.get(payload)
    if found is None:
        found = _decode(payload)
        _kept.put(payload, found)
    return found


def _decode(payload: bytes) -> Histogram:
    if len(payload) < 8:
        raise HistogramError(f"a histogram has at least 8 bytes, this payload has {len(payload)}")
    cookie, compressed_length = struct.unpack_from(">ii", payload)
    if cookie & ~COOKIE_WORD_SIZE_MASK != COOKIE_COMPRESSED:
        raise HistogramError(f"expected an HdrHistogram V2 compressed payload, found cookie {cookie:#x}")
    if compressed_length != len(payload) - 8:
        raise HistogramError(f"the header promises {compressed_length} bytes, {len(payload) - 8} are there")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(payload[8:], PAYLOAD_BYTES_MAX)
    except zlib.error as error:
        raise HistogramError(f"the compressed part cannot be read: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise HistogramError(f"the compressed part is cut short or holds more than {PAYLOAD_BYTES_MAX} bytes")
    return _decode_plain(plain)


def _decode_plain(plain: bytes) -> Histogram:
    if len(plain) < HEADER.size:
        raise HistogramError(f"the header has {HEADER.size} bytes, {len(plain)} are there")
    cookie, length, offset, digits, lowest, highest, _ratio = HEADER.unpack_from(plain)
    if cookie & ~COOKIE_WORD_SIZE_MASK != COOKIE_V2:
        raise HistogramError(f"expected HdrHistogram V2 encoding, found cookie {cookie:#x}")
    if offset != 0 or not 0 <= digits <= 5 or lowest < 1 or highest < 2 * lowest:
        raise HistogramError(f"unusable layout: offset {offset}, {digits} digits, {lowest} to {highest}")
    body = plain[HEADER.size : HEADER.size + length]
    if len(body) != length:
        raise HistogramError(f"the header promises {length} bytes of counts, {len(body)} are there")
    # The worker's own, whose numbers are known.
    layout = (
        OURS
        if (lowest, highest, digits) == (OURS.lowest, OURS.highest, OURS.digits)
        else Layout(lowest, highest, digits)
    )
    if layout.unit_magnitude + layout.sub_bucket_half_count_magnitude > 60 or layout.buckets > COUNTS_LEN_MAX:
        raise HistogramError(f"unusable layout: {digits} digits, {lowest} to {highest}")
    indices, counts = _buckets(_zigzag_leb128(body))
    if len(indices) and int(indices[-1]) >= layout.buckets:
        raise HistogramError(f"bucket {int(indices[-1])} is beyond the layout, which has {layout.buckets}")
    if len(counts) and (int(counts.max()) > COUNT_MAX or int(counts.sum()) > COUNT_MAX):
        raise HistogramError(f"more than {COUNT_MAX} samples, which no trial can reach")
    return Histogram(layout, indices, counts)


def _zigzag_leb128(body: bytes) -> Whole:
    """All numbers in `body`. Counts of 2^55 and more would need the encoding's ninth byte; they are refused
    as impossible.
    """
    if not body:
        return np.zeros(0, dtype=np.int64)
    data = np.frombuffer(body, dtype=np.uint8)
    ends = np.flatnonzero(data < 0x80)
    if not len(ends) or ends[-1] != len(data) - 1:
        raise HistogramError("the counts end in the middle of a number")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > 8:
        raise HistogramError(
            "a count needs more than 8 bytes: it is larger than 2^55, which no trial can reach"
        )
    encoded: Whole = (data[starts] & 0x7F).astype(np.int64)
    for place in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > place)
        encoded[longer] |= (data[starts[longer] + place] & 0x7F).astype(np.int64) << (7 * place)
    return np.asarray((encoded >> 1) ^ -(encoded & 1), dtype=np.int64)


def _buckets(numbers: Whole) -> tuple[Whole, Whole]:
    """Indices and counts of the buckets that are not empty; a negative number is a run of empty ones."""
    runs = np.where(numbers < 0, -numbers, 1)
    ends = np.cumsum(runs)
    if len(ends) and (ends[-1] > COUNTS_LEN_MAX or runs.max() > COUNTS_LEN_MAX):
        raise HistogramError(f"{int(ends[-1])} buckets are more than any layout has")
    filled = numbers > 0
    return (ends - runs)[filled], numbers[filled]


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The distribution of all samples together: counts are added bucket by bucket, so that nothing is lost or
    averaged.

    Raises HistogramError when layouts differ. No histogram at all gives an empty one.
    """
    given = list(histograms)
    layouts = {histogram.layout for histogram in given}
    if len(layouts) > 1:
        first, second = sorted(layouts, key=repr)[:2]
        raise HistogramError(f"histograms of different layouts cannot be added: {first} and {second}")
    filled = [histogram for histogram in given if histogram.count]
    if not filled:
        return given[0] if given else empty()
    if len(filled) == 1:
        return filled[0]
    start = min(int(histogram.indices[0]) for histogram in filled)
    last = max(int(histogram.indices[-1]) for histogram in filled)
    total: Whole = np.zeros(last - start + 1, dtype=np.int64)
    for histogram in filled:
        # Indices are distinct, so plain indexed addition loses nothing.
        total[histogram.indices - start] += histogram.counts
    places = np.flatnonzero(total)
    return Histogram(filled[0].layout, np.asarray(places + start, dtype=np.int64), total[places])


def recorded(values: Whole, counts: Whole) -> Histogram:
    """`counts[i]` samples of `values[i]` ns in the worker's layout. Raises HistogramError for a value beyond it."""
    if len(values) and (int(values.min()) < 0 or int(values.max()) > OURS.highest):
        raise HistogramError(
            f"values from {values.min()} to {values.max()} ns; 0 to {OURS.highest} can be kept"
        )
    indices, places = np.unique(OURS.indices_of(values), return_inverse=True)
    sums: Whole = np.zeros(len(indices), dtype=np.int64)
    np.add.at(sums, places, counts)
    filled = sums > 0
    return Histogram(OURS, indices[filled], sums[filled])


def encode(histogram: Histogram) -> bytes:
    """The HdrHistogram V2 compressed payload of a histogram, as workers write theirs."""
    numbers: list[int] = []
    behind = 0
    for index, count in zip(histogram.indices.tolist(), histogram.counts.tolist(), strict=True):
        if index > behind:
            # A single empty bucket is written as what it is, several as a run.
            numbers.append(0 if index - behind == 1 else behind - index)
        numbers.append(count)
        behind = index + 1
    body = bytearray()
    for number in numbers:
        rest = -2 * number - 1 if number < 0 else 2 * number
        while rest > 0x7F:
            body.append(rest & 0x7F | 0x80)
            rest >>= 7
        body.append(rest)
    layout = histogram.layout
    header = HEADER.pack(COOKIE_V2 | 0x10, len(body), 0, layout.digits, layout.lowest, layout.highest, 1.0)
    packed = zlib.compress(header + bytes(body))
    return struct.pack(">ii", COOKIE_COMPRESSED | 0x10, len(packed)) + packed
