"use strict";
/* Numbers and small statistics. Nothing here touches the page. */

const Figures = {
  /* Three significant digits, as in the tables. */
  short(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "-";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e4) return Math.round(value).toLocaleString("en");
    const digits = Math.max(0, 2 - Math.floor(Math.log10(size)));
    return value.toLocaleString("en", { minimumFractionDigits: Math.min(digits, 6), maximumFractionDigits: Math.min(digits, 6) });
  },

  /* Ticks: 12k, 1.5M. */
  tick(value) {
    const size = Math.abs(value);
    const trimmed = (scaled) => String(+scaled.toPrecision(4));
    if (size >= 1e9) return trimmed(value / 1e9) + "G";
    if (size >= 1e6) return trimmed(value / 1e6) + "M";
    if (size >= 1e4) return trimmed(value / 1e3) + "k";
    return trimmed(value);
  },

  /* 0, 50, 90, 99, 99.9 ... from a distance in decades. */
  percentile(decades) {
    const percent = 100 * (1 - Math.pow(10, -decades));
    const digits = decades < 1 ? 0 : Math.min(7, Math.max(1, Math.ceil(decades - 2 - 1e-6) + (Number.isInteger(decades) ? 0 : 1)));
    return String(+percent.toFixed(digits));
  },

  median(values) {
    const known = values.filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
    if (known.length === 0) return null;
    const middle = known.length >> 1;
    return known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
  },

  /* Point by point over several curves on one grid: median, smallest, largest. Where a curve has ended, the others go on. */
  across(curves) {
    const length = Math.max(0, ...curves.map((curve) => curve.length));
    const found = { median: [], low: [], high: [] };
    for (let index = 0; index < length; index += 1) {
      const values = curves.map((curve) => curve[index]).filter((value) => value !== null && value !== undefined);
      found.median.push(Figures.median(values));
      found.low.push(values.length ? Math.min(...values) : null);
      found.high.push(values.length ? Math.max(...values) : null);
    }
    return found;
  },

  /* One time axis for series with axes of their own; null where a series has no point. */
  aligned(series) {
    const times = [...new Set(series.flatMap((one) => one.time))].sort((a, b) => a - b);
    const place = new Map(times.map((time, index) => [time, index]));
    return [times, ...series.map((one) => {
      const row = new Array(times.length).fill(undefined);
      one.time.forEach((time, index) => { row[place.get(time)] = one.values[index]; });
      return row;
    })];
  },
};
