"use strict";
/* The page: which systems and trials are plotted, the theme, and every chart from the data island. */

const Report = (() => {
  let data = JSON.parse(document.getElementById("data").textContent);
  const FIGURES = { p50: "p50", p99: "p99", max: "max" };
  const SHOWN_AT_FIRST = 8;
  const CPU_PANELS_MAX = 8;
  const MEDIAN = "median", ALL = "all";
  const state = { workload: 0, subjects: new Set(), figures: new Set(), repeats: MEDIAN, chosen: false, known: data.subjects.length };

  const visible = () => data.subjects.map((subject, index) => [subject, index])
    .filter(([subject, index]) => subject.workload === state.workload && state.subjects.has(index));
  /* A system has one colour; of several of one system the others have shades of it, and dashes. */
  const DASHES = [undefined, [6, 3], [2, 3], [10, 3, 2, 3]];
  const ink = (index) => Plots.shade(data.subjects[index].slot, data.subjects[index].variant);
  const dash = (index) => DASHES[data.subjects[index].variant % DASHES.length];

  function chooseWorkload(index) {
    state.workload = index;
    const mine = data.subjects.map((subject, at) => [subject, at]).filter(([subject]) => subject.workload === index);
    state.subjects = new Set(mine.slice(0, SHOWN_AT_FIRST).map(([, at]) => at));
    state.figures = new Set(mine.length > 2 ? ["p99"] : ["p50", "p99", "max"]);
  }

  /* Trials that a chart over time shows: the median trial of each system, or all of them. */
  function trialsOf(subject) {
    const chosen = state.repeats === ALL ? subject.trials : [subject.median];
    return chosen.map((index) => data.trials[index]);
  }

  function labelOf(subject, trial) {
    return state.repeats === ALL && subject.trials.length > 1 ? `${subject.label}, trial ${trial.number}` : subject.label;
  }

  /* ---- latency by percentile ---- */

  function drawPercentiles(element, metric) {
    const series = [{}], bands = [], columns = [];
    let length = 0;
    for (const [subject, index] of visible()) {
      const counted = subject.trials.map((at) => data.trials[at]).filter((trial) => trial.counted && trial[metric].length > 0);
      if (counted.length === 0) continue;
      const stroke = ink(index);
      if (state.repeats === ALL && counted.length > 1) {
        for (const trial of counted) {
          series.push({ label: labelOf(subject, trial), ink: stroke, stroke, width: 1.4, dash: dash(index), points: { show: false } });
          columns.push(trial[metric]);
        }
      } else {
        const across = Figures.across(counted.map((trial) => trial[metric]));
        const base = { stroke, ink: stroke, points: { show: false } };
        if (counted.length > 1) {
          series.push(Object.assign({ label: "high", silent: true }, base, { width: 0 }), Object.assign({ label: "low", silent: true }, base, { width: 0 }));
          columns.push(across.high, across.low);
          bands.push({ series: [series.length - 2, series.length - 1], fill: Plots.fade(stroke, 0.16) });
        }
        series.push(Object.assign({ label: subject.label }, base, { width: 2.2, dash: subject.foreign ? [3, 3] : dash(index) }));
        columns.push(across.median);
      }
      length = Math.max(length, ...counted.map((trial) => trial[metric].length));
    }
    const x = Array.from({ length }, (_, step) => step / data.stepsPerDecade);
    const ragged = columns.map((column) => x.map((_, at) => (at < column.length ? column[at] : null)));
    const last = length ? x[length - 1] : 1;
    /* As many ticks as there is room for: all decades, or every second one. */
    const splits = (plot) => {
      const room = plot.bbox.width / devicePixelRatio / Math.max(1, last);
      const wanted = room >= 56 ? [0, Math.log10(2), 1, 2, 3, 4, 5, 6, 7, 8] : room >= 26 ? [0, 1, 2, 4, 6, 8] : [0, 2, 5, 8];
      return wanted.filter((at) => at <= last + 1e-9);
    };
    Plots.draw(element, {
      scales: { x: { time: false, range: () => [0, Math.max(1, last)] }, y: { distr: 3, range: Plots.logRange } },
      axes: [
        Plots.axis({ splits, values: (_plot, at) => at.map(Figures.percentile), label: "percentile of messages", labelSize: 18, labelFont: "11px system-ui, sans-serif", size: 30 }),
        Plots.logAxis("ms"),
      ],
      series, bands,
      cursor: { drag: { x: false, y: false }, points: { size: 7 } },
      plugins: [Plots.tooltip((at) => `${at >= last - 1e-9 ? "max, beyond " : ""}p${Figures.percentile(at)}`, (value) => Figures.short(value) + " ms")],
    }, columns.length ? [x, ...ragged] : [[]], "Nothing was recorded for what is chosen above.");
  }

  /* ---- over time ---- */

  function overTime(element, names, options) {
    const series = [{}], lines = [], windows = [], targets = [];
    let marks = [], bands = [];
    const away = [];
    for (const [subject, index] of visible()) {
      const chosen = trialsOf(subject);
      for (const trial of chosen) {
        let any = false;
        for (const [name, title, style] of names) {
          const values = trial.series[name];
          if (!values) continue;
          any = true;
          const stroke = ink(index);
          const faint = chosen.length > 1;
          series.push(Object.assign(
            { label: title ? `${labelOf(subject, trial)}, ${title}` : labelOf(subject, trial), ink: stroke, stroke, width: faint ? 1 : 1.8, points: { show: values.length < 3, size: 5 }, dash: subject.foreign ? [3, 3] : dash(index), spanGaps: false },
            style,
          ));
          lines.push({ time: trial.time, values });
        }
        if (!any) continue;
        if (trial.measure) windows.push(trial.measure);
        if (marks.length === 0 && trial.phases) marks = trial.phases;
        if (bands.length === 0 && trial.faults) bands = trial.faults;
        if (trial.away) away.push(...trial.away);
        if (subject.target) targets.push(subject.target);
      }
    }
    const plugins = [Plots.phases(windows, marks, bands, away), Plots.tooltip((at) => Figures.short(at) + " s", options.show)];
    if (options.target && targets.length > 0) plugins.push(Plots.levels(targets, "y"));
    Plots.draw(element, {
      scales: { x: { time: false, range: (_plot, low, high) => [Math.max(0, Math.floor(low - 0.5)), Math.ceil(high)] }, y: options.log ? { distr: 3, range: Plots.logRange } : { range: Plots.fromZero } },
      axes: [Plots.axis({ label: "seconds since the start", labelSize: 18, labelFont: "11px system-ui, sans-serif", size: 28, values: (_plot, at) => at.map(Figures.tick) }), options.log ? Plots.logAxis(options.unit) : Plots.linearAxis(options.unit)],
      series,
      cursor: { sync: { key: "time" }, drag: { x: true, y: false }, points: { size: 6 } },
      plugins,
    }, lines.length ? Figures.aligned(lines) : [[]], options.nothing || "Nothing was recorded for what is chosen above.");
  }

  function drawLatencyOverTime(element, metric) {
    const styles = { p50: { dash: [2, 3], width: 1.6 }, p99: { width: 2 }, max: { width: 1, alpha: 0.6 } };
    const names = Object.keys(FIGURES).filter((figure) => state.figures.has(figure))
      .map((figure) => [`${metric}_${figure}`, state.figures.size > 1 ? figure : "", styles[figure]]);
    overTime(element, names, { log: true, unit: "ms", show: (value) => Figures.short(value) + " ms" });
  }

  /* ---- who used the CPU: one stack per system ---- */

  const OWNERS = [["cpu_gauge", "generator", "gauge"], ["cpu_system", "system", "system"], ["cpu_lab", "lab", "lab"], ["cpu_others", "others", "others"], ["cpu_steal", "steal", "steal"]];

  function drawCpu(element, trial, cores) {
    const present = OWNERS.filter(([name]) => trial.series[name]);
    const sums = [];
    let below = trial.time.map(() => 0);
    for (const [name] of present) {
      /* Where one owner is not known (the drain's last part of an interval), the stack has a gap instead of a false drop. */
      below = below.map((value, at) => {
        const own = trial.series[name][at];
        return value === null || own === null || own === undefined ? null : value + own;
      });
      sums.push(below);
    }
    /* The tallest sum is drawn first and the smaller ones over it, so that each keeps its own band. */
    const order = present.map((_, at) => at).reverse();
    const series = [{}, ...order.map((at) => {
      const fill = Plots.colour(present[at][2]);
      return { label: present[at][1], ink: fill, stroke: fill, fill, width: 0, points: { show: false }, told: trial.series[present[at][0]] };
    })];
    Plots.draw(element, {
      scales: { x: { time: false, range: (_plot, low, high) => [Math.max(0, Math.floor(low - 0.5)), Math.ceil(high)] }, y: { range: (_plot, _low, high) => [0, Math.max(high, cores || 0) * 1.18] } },
      axes: [Plots.axis({ size: 28, label: "seconds since the start", labelSize: 18, labelFont: "11px system-ui, sans-serif", values: (_plot, at) => at.map(Figures.tick) }), Plots.linearAxis("cores")],
      series,
      cursor: { sync: { key: "time" }, drag: { x: true, y: false }, points: { show: false } },
      plugins: [Plots.phases(trial.measure ? [trial.measure] : [], trial.phases || [], trial.faults || [], trial.away || []), Plots.tooltip((at) => Figures.short(at) + " s", (value) => Figures.short(value) + " cores"), Plots.levels(cores ? [cores] : [], "y")],
    }, present.length ? [trial.time, ...order.map((at) => sums[at])] : [[]], "CPU was not sampled.");
    return present;
  }

  /* In a run that goes on a chart that is being read stands still. */
  const isRead = (element) => Boolean(data.live) && (element.closest("figure") || element).matches(":hover, :focus-within");

  function drawCpuPanels() {
    const grid = document.getElementById("cpu");
    if (isRead(grid)) return;
    if (data.live) grid.style.minHeight = `${grid.offsetHeight}px`;
    Plots.forget(grid);
    grid.replaceChildren();
    const panels = visible().filter(([subject]) => !subject.foreign)
      .flatMap(([subject, index]) => trialsOf(subject).map((trial) => [subject, index, trial]))
      .filter(([, , trial]) => trial.time.length > 0);
    for (const id of ["cpu-title", "cpu-hint"]) document.getElementById(id).hidden = panels.length === 0;
    for (const [subject, index, trial] of panels.slice(0, CPU_PANELS_MAX)) {
      const figure = document.createElement("figure");
      figure.className = "chart";
      figure.style.setProperty("--c", subject.colour);
      const title = document.createElement("h3");
      const swatch = document.createElement("i");
      swatch.className = "swatch";
      title.append(swatch, labelOf(subject, trial));
      const plot = document.createElement("div");
      plot.className = "plot";
      plot.style.minHeight = "220px";
      const keys = document.createElement("div");
      keys.className = "keys";
      figure.append(title, plot, keys);
      grid.appendChild(figure);
      for (const [, name, tone] of drawCpu(plot, trial, subject.cores)) {
        const key = document.createElement("span");
        const dot = document.createElement("i");
        dot.className = "swatch";
        dot.style.background = `var(--${tone})`;
        key.append(dot, name);
        keys.appendChild(key);
      }
    }
    if (panels.length > CPU_PANELS_MAX) {
      const more = document.createElement("p");
      more.className = "hint";
      more.textContent = `${panels.length - CPU_PANELS_MAX} more are not drawn: choose fewer systems above to see them.`;
      grid.appendChild(more);
    }
  }

  /* ---- what the systems told of themselves ---- */

  function drawOwn() {
    const grid = document.getElementById("own");
    Plots.forget(grid);
    grid.replaceChildren();
    const shown = data.own.filter((one) => visible().some(([subject]) => trialsOf(subject).some((trial) => trial.series[one.name])));
    const spared = document.getElementById("own-spared");
    spared.textContent = data.ownSpared.map((said) => `${said}.`).join(" ");
    spared.hidden = data.ownSpared.length === 0;
    for (const id of ["own-title", "own-hint"]) document.getElementById(id).hidden = shown.length === 0 && spared.hidden;
    for (const one of shown) {
      const figure = document.createElement("figure");
      figure.className = "chart";
      const caption = document.createElement("figcaption");
      const title = document.createElement("h3");
      title.textContent = one.title;
      const hint = document.createElement("p");
      hint.className = "hint";
      hint.textContent = `${one.unit} \u00b7 ${one.explains}`;
      caption.append(title, hint);
      const plot = document.createElement("div");
      plot.className = "plot";
      figure.append(caption, plot);
      grid.appendChild(figure);
      overTime(plot, [[one.name, "", {}]], plain(one.unit));
    }
  }

  /* ---- all of them ---- */

  const plain = (unit, log) => ({ log: Boolean(log), unit, show: (value) => `${Figures.short(value)} ${unit}` });
  const PLOTS = {
    publish_percentiles: (element) => drawPercentiles(element, "publish"),
    end_to_end_percentiles: (element) => drawPercentiles(element, "end_to_end"),
    publish_time: (element) => drawLatencyOverTime(element, "publish"),
    end_to_end_time: (element) => drawLatencyOverTime(element, "end_to_end"),
    rate: (element) => overTime(element, [["rate", "", {}]], Object.assign(plain("msg/s"), { target: true })),
    backlog: (element) => overTime(element, [["backlog", "", {}]], plain("messages")),
    memory: (element) => overTime(element, [["memory", "", {}]], Object.assign(plain("MB"), { nothing: "The system's processes were not sampled." })),
    written: (element) => overTime(element, [["written", "", {}]], Object.assign(plain("MB/s"), { nothing: "The system's processes were not sampled." })),
  };

  /* A level says what happens before an acknowledgement: it bears on latencies and rates, not on memory. */
  function drawAll() {
    const levels = [...new Set(visible().map(([subject]) => subject.level))].filter((level) => level !== "unknown").sort();
    for (const element of document.querySelectorAll("[data-plot]")) {
      if (isRead(element)) continue;
      PLOTS[element.dataset.plot](element);
      const title = element.closest("figure").querySelector("h3");
      const note = title.querySelector("em");
      if (note) note.remove();
      if (levels.length > 1 && element.dataset.ofLevel !== undefined) {
        const told = document.createElement("em");
        told.textContent = `different durability levels: ${levels.join(", ")}`;
        title.appendChild(told);
      }
    }
    drawOwn();
    drawCpuPanels();
  }

  /* ---- controls ---- */

  function chip(text, pressed, onClick, mark) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "chip";
    button.setAttribute("aria-pressed", String(pressed));
    if (mark) button.appendChild(mark);
    button.append(text);
    button.addEventListener("click", onClick);
    return button;
  }

  function named(text) {
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = text;
    return name;
  }

  function toggle(set, value) {
    if (!set.delete(value)) set.add(value);
    refresh();
  }

  function select(options, value, onChange) {
    const element = document.createElement("select");
    for (const [key, text] of options) {
      const option = document.createElement("option");
      option.value = key;
      option.textContent = text;
      element.appendChild(option);
    }
    element.value = value;
    element.addEventListener("change", () => onChange(element.value));
    return element;
  }

  function buildControls() {
    const controls = document.getElementById("controls");
    controls.replaceChildren();
    controls.hidden = data.subjects.length === 0;
    if (data.workloads.length > 1) {
      const choice = select(data.workloads.map((name, index) => [String(index), name]), String(state.workload), (value) => { state.chosen = true; chooseWorkload(Number(value)); refresh(); });
      choice.setAttribute("aria-label", "Workload");
      controls.append(named("Workload"), choice);
    }
    const mine = data.subjects.map((subject, index) => [subject, index]).filter(([subject]) => subject.workload === state.workload);
    for (const [subject, index] of mine) {
      const swatch = document.createElement("i");
      swatch.className = "swatch";
      swatch.style.background = subject.colour;
      controls.appendChild(chip(subject.label, state.subjects.has(index), () => toggle(state.subjects, index), swatch));
    }
    if (mine.length > 3) {
      controls.appendChild(chip("all", state.subjects.size === mine.length, () => { state.subjects = new Set(mine.map(([, index]) => index)); refresh(); }));
      controls.appendChild(chip("none", state.subjects.size === 0, () => { state.subjects = new Set(); refresh(); }));
    }
    if (mine.some(([subject]) => subject.trials.length > 1)) {
      const choice = select([[MEDIAN, "median of trials, with range"], [ALL, "every trial"]], state.repeats, (value) => { state.repeats = value; refresh(); });
      choice.setAttribute("aria-label", "Trials");
      controls.append(named("Trials"), choice);
    }
    const time = document.getElementById("time-controls");
    time.replaceChildren(named("Latency over time"));
    time.hidden = data.subjects.length === 0;
    for (const figure of Object.keys(FIGURES)) {
      const line = document.createElement("i");
      line.className = "line " + figure;
      time.appendChild(chip(FIGURES[figure], state.figures.has(figure), () => toggle(state.figures, figure), line));
    }
    if (state.repeats === MEDIAN && mine.some(([subject]) => subject.trials.length > 1)) {
      const note = document.createElement("span");
      note.className = "hint";
      note.textContent = data.live ? "Over time, each system shows its latest trial." : "Over time, each system shows its trial with the median publish p99.";
      time.appendChild(note);
    }
  }

  function refresh() {
    buildControls();
    drawAll();
  }

  /* What a run that goes on has to add; `others`: there are other lines to choose from. The workload of the latest line is shown as long as no other was chosen. */
  function show(next, others) {
    data = next;
    if (!others) { drawAll(); return; }
    const known = state.known, latest = data.subjects.length - 1;
    state.known = data.subjects.length;
    if (known <= latest && !state.chosen && data.subjects[latest].workload !== state.workload) chooseWorkload(data.subjects[latest].workload);
    data.subjects.forEach((subject, index) => {
      if (index >= known && subject.workload === state.workload && state.subjects.size < SHOWN_AT_FIRST) state.subjects.add(index);
    });
    refresh();
  }

  /* ---- theme ---- */

  const THEMES = ["auto", "light", "dark"];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let theme = "auto";
  try { theme = localStorage.getItem("streamgauge-theme") || "auto"; } catch { /* A page opened from a file may have no storage. */ }
  if (!THEMES.includes(theme)) theme = "auto";

  function applyTheme(name) {
    const resolved = name === "auto" ? (dark.matches ? "dark" : "light") : name;
    document.documentElement.dataset.theme = resolved;
    document.getElementById("theme").textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[name];
  }

  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem("streamgauge-theme", theme); } catch { /* The choice lasts as long as the page then. */ }
    applyTheme(theme);
    drawAll();
  });
  dark.addEventListener("change", () => { applyTheme(theme); drawAll(); });
  /* Paper is white whatever the screen is. */
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    drawAll();
  });
  addEventListener("afterprint", () => {
    applyTheme(theme);
    drawAll();
  });

  applyTheme(theme);
  chooseWorkload(0);
  refresh();
  document.documentElement.dataset.ready = "yes";
  return { show };
})();
