"use strict";
/* Charts: options for uPlot, tooltips, shading of the warm-up. A chart is a function that draws into an element and can be drawn again. */

const Plots = (() => {
  const live = new Map();

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function fade(hex, alpha) {
    const value = parseInt(hex.slice(1), 16);
    return `rgba(${value >> 16}, ${(value >> 8) & 255}, ${value & 255}, ${alpha})`;
  }

  /* As report/colours.py has it: the second and third of one system have some of the page's ink in their colour. */
  function shade(slot, variant) {
    const share = [1, 0.6, 0.3][variant % 3], own = parseInt(colour("series-" + slot).slice(1), 16), ink = parseInt(colour("ink").slice(1), 16);
    const mixed = [16, 8, 0].map((shift) => Math.round(share * ((own >> shift) & 255) + (1 - share) * ((ink >> shift) & 255)));
    return "#" + mixed.map((part) => part.toString(16).padStart(2, "0")).join("");
  }

  function axis(options) {
    return Object.assign({
      stroke: colour("faint"),
      font: "11px system-ui, sans-serif",
      grid: { stroke: colour("grid"), width: 1 },
      ticks: { stroke: colour("line"), width: 1, size: 4 },
      gap: 4,
    }, options);
  }

  /* One to nine times each power of ten within the range; a range too narrow for three of them gets even steps. */
  function logSplits(_plot, _axis, low, high) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (let mantissa = 1; mantissa < 10; mantissa += 1) {
        const value = +(mantissa * Math.pow(10, power)).toPrecision(6);
        if (value >= low && value <= high) found.push(value);
      }
    }
    if (found.length >= 3) return found;
    const step = (high - low) / 4;
    return [0.5, 1.5, 2.5, 3.5].map((at) => +(low + at * step).toPrecision(2)).filter((value, index, all) => value !== all[index - 1]);
  }

  /* Powers of ten get a label, what lies between them as much as there is room for. */
  function logAxis(label) {
    return axis({
      size: 52,
      label,
      labelSize: 16,
      labelFont: "11px system-ui, sans-serif",
      splits: logSplits,
      filter: (_plot, splits) => splits,
      values: (plot, splits) => {
        const span = Math.log10(plot.scales.y.max / plot.scales.y.min);
        const wanted = span > 2.5 ? [1] : span > 1.2 ? [1, 3] : span > 0.7 ? [1, 2, 5] : null;
        return splits.map((value) => {
          const mantissa = Math.round(value / Math.pow(10, Math.floor(Math.log10(value) + 1e-9)));
          return wanted === null || wanted.includes(mantissa) ? Figures.tick(value) : "";
        });
      },
    });
  }

  function linearAxis(label) {
    return axis({ size: 52, label, labelSize: 16, labelFont: "11px system-ui, sans-serif", values: (_plot, splits) => splits.map(Figures.tick) });
  }

  /* A range on a log scale: whole tenths of decades around the data, never degenerate. */
  function logRange(_plot, low, high) {
    if (low === null || low === undefined || !(high > 0)) return [0.1, 10];
    const bottom = Math.log10(Math.max(low, 1e-6)), top = Math.log10(Math.max(high, 1e-6));
    const pad = Math.max(0.06, (top - bottom) * 0.06);
    return [Math.pow(10, bottom - pad), Math.pow(10, top + pad)];
  }

  function fromZero(_plot, _low, high) {
    return [0, high > 0 ? high * 1.12 : 1];
  }

  /* A box beside the cursor with what every visible line says there. */
  function tooltip(titleOf, show) {
    let box = null;
    return { titleOf, show, hooks: {
      init: [(plot) => {
        box = document.createElement("div");
        box.className = "tip";
        box.hidden = true;
        plot.root.parentNode.appendChild(box);
        plot.over.addEventListener("mouseleave", () => { box.hidden = true; });
      }],
      setCursor: [(plot) => {
        const { idx, left, top } = plot.cursor;
        const hovered = left >= 0 && (plot.over.matches(":hover") || document.activeElement === plot.root.parentNode);
        if (!hovered || idx === null || idx === undefined) { box.hidden = true; return; }
        const lines = [];
        plot.series.forEach((series, index) => {
          if (index === 0 || !series.show || series.silent) return;
          const nearest = plot.cursor.idxs ? plot.cursor.idxs[index] : idx;
          const value = nearest === null ? null : (series.told ? series.told[nearest] : plot.data[index][nearest]);
          if (value === null || value === undefined) return;
          lines.push([series, value]);
        });
        if (lines.length === 0) { box.hidden = true; return; }
        box.replaceChildren();
        const head = document.createElement("b");
        head.textContent = titleOf(plot.data[0][idx]);
        box.appendChild(head);
        lines.sort((a, b) => b[1] - a[1]);
        for (const [series, value] of lines.slice(0, 12)) {
          const line = document.createElement("div");
          const swatch = document.createElement("i");
          swatch.className = "swatch";
          swatch.style.background = series.ink;
          const name = document.createElement("span");
          name.textContent = series.label;
          const figure = document.createElement("strong");
          figure.textContent = show(value);
          line.append(swatch, name, figure);
          box.appendChild(line);
        }
        if (lines.length > 12) {
          const rest = document.createElement("div");
          rest.textContent = `and ${lines.length - 12} more`;
          box.appendChild(rest);
        }
        box.hidden = false;
        const frame = plot.root.parentNode.clientWidth;
        const x = plot.over.offsetLeft + left, width = box.offsetWidth;
        box.style.left = Math.max(0, x + 14 + width > frame ? Math.min(x - width - 14, frame - width) : x + 14) + "px";
        box.style.top = Math.max(0, plot.over.offsetTop + Math.min(top, plot.over.clientHeight - box.offsetHeight)) + "px";
      }],
    } };
  }

  /* A band of slanted lines with an edge on either side. */
  function hatch(context, box, left, right) {
    const unit = devicePixelRatio, wide = Math.max(right - left, 2 * unit);
    context.save();
    context.beginPath();
    context.rect(left, box.top, wide, box.height);
    context.clip();
    context.strokeStyle = colour("bad");
    context.lineWidth = unit;
    context.globalAlpha = 0.35;
    for (let x = left - box.height; x < left + wide; x += 7 * unit) {
      context.beginPath();
      context.moveTo(x, box.top + box.height);
      context.lineTo(x + box.height, box.top);
      context.stroke();
    }
    context.globalAlpha = 0.9;
    context.lineWidth = 2 * unit;
    context.strokeRect(left, box.top - unit, wide, box.height + 2 * unit);
    context.restore();
  }

  /* What lies before the measured phase and after it is shaded; `windows` are [from, until] of the trials shown. `marks` are
     [name, from, until] of phases that follow the measured one: a line and a name where each begins. `bands` are [name, from,
     until] of faults made on purpose: a hatched band between two lines, so that it does not depend on colour. `away` are [from,
     until] in which a CPU was not to be had: marks at the foot. */
  function phases(windows, marks = [], bands = [], away = []) {
    if (windows.length === 0) return { hooks: {} };
    const from = Math.min(...windows.map((one) => one[0]));
    const ends = windows.map((one) => one[1]).filter((end) => end !== null);
    const edge = (plot, value) => Math.min(plot.bbox.left + plot.bbox.width, Math.max(plot.bbox.left, plot.valToPos(value, "x", true)));
    return { hooks: {
      drawClear: [(plot) => {
        const context = plot.ctx, box = plot.bbox;
        const start = edge(plot, from), end = ends.length > 0 ? edge(plot, Math.max(...ends)) : box.left + box.width;
        context.save();
        context.fillStyle = colour("shade");
        context.fillRect(box.left, box.top, start - box.left, box.height);
        context.fillRect(end, box.top, box.left + box.width - end, box.height);
        for (const [, begin, until] of bands) hatch(context, box, edge(plot, begin), edge(plot, until));
        context.fillStyle = colour("steal");
        for (const [begin, until] of away) {
          const x = edge(plot, begin);
          context.fillRect(x, box.top + box.height - 7 * devicePixelRatio, Math.max(devicePixelRatio, edge(plot, until) - x), 7 * devicePixelRatio);
        }
        context.restore();
      }],
      /* The label comes after the grid, on a patch of its own, so that no line runs through it. */
      drawAxes: [(plot) => {
        const context = plot.ctx, box = plot.bbox, unit = devicePixelRatio;
        context.save();
        context.font = `${10.5 * unit}px system-ui, sans-serif`;
        context.textBaseline = "top";
        context.textAlign = "left";
        const width = context.measureText("warm-up").width;
        if (width + 10 * unit < edge(plot, from) - box.left) {
          context.fillStyle = colour("panel");
          context.fillRect(box.left + 3 * unit, box.top + 3 * unit, width + 5 * unit, 14 * unit);
          context.fillStyle = colour("faint");
          context.fillText("warm-up", box.left + 5 * unit, box.top + 5 * unit);
        }
        for (const [name, begin, until] of [...marks, ...bands]) {
          const x = Math.round(edge(plot, begin));
          if (x <= box.left || x >= box.left + box.width) continue;
          context.strokeStyle = colour("soft");
          context.lineWidth = unit;
          context.beginPath();
          context.moveTo(x, box.top);
          context.lineTo(x, box.top + box.height);
          context.stroke();
          /* A phase too narrow for its name keeps its line. */
          const wide = context.measureText(name).width;
          if (wide + 8 * unit > edge(plot, until) - x) continue;
          context.fillStyle = colour("panel");
          context.fillRect(x + 3 * unit, box.top + 3 * unit, wide + 5 * unit, 14 * unit);
          context.fillStyle = colour("faint");
          context.fillText(name, x + 5 * unit, box.top + 5 * unit);
        }
        context.restore();
      }],
    } };
  }

  /* Dashed horizontal lines: targets, all cores. */
  function levels(values, scale) {
    return { hooks: { draw: [(plot) => {
      const context = plot.ctx, box = plot.bbox;
      context.save();
      context.setLineDash([5 * devicePixelRatio, 5 * devicePixelRatio]);
      context.lineWidth = devicePixelRatio;
      context.strokeStyle = colour("soft");
      for (const value of new Set(values)) {
        const y = Math.round(plot.valToPos(value, scale, true));
        if (y < box.top || y > box.top + box.height) continue;
        context.beginPath();
        context.moveTo(box.left, y);
        context.lineTo(box.left + box.width, y);
        context.stroke();
      }
      context.restore();
    }] } };
  }

  function heightAt(width, element) {
    return element.dataset.plot === undefined ? 220 : width < 460 ? 250 : 290;
  }

  /* Draws into an element, replacing what was there; without data a sentence stands in its place. */
  function draw(element, options, data, nothing) {
    const old = live.get(element);
    if (old) old.destroy();
    live.delete(element);
    element.replaceChildren();
    const empty = data.length < 2 || data[0].length === 0;
    element.classList.toggle("empty", empty);
    if (empty) { Reading.nothing(element); element.textContent = nothing; return; }
    const told = options.plugins.find((one) => one.titleOf);
    const zooms = Boolean(options.cursor.drag.x);
    const width = Math.max(220, element.clientWidth);
    const plot = new uPlot(Object.assign({
      width,
      height: heightAt(width, element),
      legend: { show: false },
      padding: [10, 22, 0, 0],
    }, options, { plugins: [...options.plugins, Reading.plugin(element, told, zooms)] }), data, element);
    live.set(element, plot);
    if (observer) observer.observe(element);
  }

  const observer = typeof ResizeObserver === "undefined" ? null : new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const plot = live.get(target);
      const width = Math.max(220, Math.floor(contentRect.width));
      if (plot && plot.width !== width) plot.setSize({ width, height: heightAt(width, target) });
    }
  });

  /* Frees the charts within an element that is about to go. */
  function forget(parent) {
    for (const [element, plot] of live) {
      if (!parent.contains(element)) continue;
      plot.destroy();
      live.delete(element);
      if (observer) observer.unobserve(element);
    }
  }

  return { colour, shade, fade, axis, logAxis, linearAxis, logRange, fromZero, tooltip, phases, levels, draw, forget };
})();
