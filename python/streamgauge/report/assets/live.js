"use strict";
/* The page of a run that goes on: asks the lab for what is newer than what it has, and shows it. */

(() => {
  const POINTS_MAX = 900, LINES_MAX = 80;
  const AGAIN_MS = 1000, ANSWER_MS = 25000;
  const byId = (id) => document.getElementById(id);
  const viewer = crypto.getRandomValues(new Uint32Array(2)).join("-");
  const data = JSON.parse(byId("data").textContent);
  let lab = null, since = 0, state = null, clockMs = 0, lastMs = null, leaving = false;

  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
  const now = () => Date.now() + clockMs;

  function words(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    if (whole < 90) return `${whole} s`;
    return whole < 5400 ? `${Math.round(whole / 60)} min` : `${(whole / 3600).toFixed(1)} h`;
  }

  function element(name, text, className) {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  /* ---- charts ---- */

  const emptyTrial = (told) => ({ subject: told.subject, number: told.number, repeat: told.repeat, time: [], series: {}, away: [], faults: [], publish: [], end_to_end: [] });

  function addPoint(trial, values) {
    const length = trial.time.length;
    trial.time.push(values.time);
    for (const [name, value] of Object.entries(values)) {
      if (name === "time") continue;
      if (!trial.series[name]) trial.series[name] = new Array(length).fill(null);
      trial.series[name].push(value);
    }
    for (const column of Object.values(trial.series)) if (column.length === length) column.push(null);
    if (trial.time.length > POINTS_MAX) {
      trial.time.shift();
      for (const column of Object.values(trial.series)) column.shift();
    }
  }

  function addTrials(told) {
    for (const one of told) {
      const trial = data.trials[one.index] || (data.trials[one.index] = emptyTrial(one));
      Object.assign(trial, { valid: one.valid, counted: one.counted, measure: one.measure, phases: one.phases, publish: one.publish, end_to_end: one.end_to_end });
      for (const values of one.points) addPoint(trial, values);
      trial.away.push(...one.away);
      if (one.gone) data.trials[one.index] = emptyTrial(one);
    }
  }

  /* ---- words ---- */

  function showSecond(second) {
    const figures = [
      ["asked for, msg/s", second.target_msgs_s === null ? "maximum" : Figures.short(second.target_msgs_s)], ["sent, msg/s", Figures.short(second.sent_msgs_s)],
      ["acknowledged, msg/s", Figures.short(second.acked_msgs_s)], ["received, msg/s", Figures.short(second.received_msgs_s)],
      [`${second.headline} p50, ms`, Figures.short(second.p50_ms)], [`${second.headline} p99, ms`, Figures.short(second.p99_ms)],
      ["end-to-end p99, ms", Figures.short(second.end_to_end_p99_ms)], ["backlog, messages", Figures.short(second.backlog_msgs)],
    ];
    if (second.failed_msgs) figures.push(["failed, messages", `${second.failed_msgs} ${second.errors}`]);
    byId("second").replaceChildren(...figures.map(([name, value]) => {
      const pair = document.createElement("div");
      pair.append(element("dt", name), element("dd", value));
      return pair;
    }));
  }

  function addLines(lines) {
    const list = byId("lines");
    for (const [ms, kind, text] of lines) {
      const line = document.createElement("li");
      line.append(element("time", clock(ms)), element("span", kind, kind), element("span", text));
      list.prepend(line);
    }
    while (list.children.length > LINES_MAX) list.lastChild.remove();
  }

  function addRows(rows) {
    const body = byId("rows");
    for (const told of rows) {
      const row = document.createElement("tr");
      row.id = `trial-${told.number}`;
      const word = element("td", "");
      word.append(element("span", told.word, `word ${told.tone}`));
      if (told.told) word.append(element("div", told.told, "hint"));
      row.append(element("td", String(told.number), "number"), element("td", told.system), element("td", told.workload), word,
        element("td", told.rate, "number"), element("td", told.p99, "number"), element("td", told.end_to_end_p99, "number"));
      const before = byId(row.id);
      if (before) before.replaceWith(row); else body.append(row);
    }
    byId("none").hidden = body.children.length > 0;
    byId("table").hidden = body.children.length === 0;
  }

  function showVerdict(verdict) {
    byId("verdict").hidden = verdict.length === 0;
    if (verdict.length === 0) return;
    byId("first").textContent = `So far: ${verdict[0]}`;
    byId("claims").replaceChildren(...verdict.slice(1).map((text) => element("li", text)));
  }

  /* What changes with the clock alone. */
  function tick() {
    if (state === null) return;
    const { phase, second, left, ended } = state;
    const inPhase = (now() - phase.began_ms) / 1000;
    const ofLoad = second !== null && ended === null && ["warm-up", "measure", "build backlog", "catch-up", "after"].includes(phase.name);
    byId("phase").textContent = ended ? `ended: ${ended.status}` : phase.name || "starting";
    byId("doing").textContent = ended ? "" : ofLoad ? `${Math.round(second.elapsed_s)} of ${words(second.total_s)} of load` : `${words(inPhase)} ${phase.progress}`;
    byId("progress").hidden = !ofLoad;
    if (ofLoad) byId("progress").firstElementChild.style.width = `${Math.min(100, 100 * second.elapsed_s / second.total_s)}%`;
    byId("left").textContent = ended ? "" : left === null ? "time left: not known yet" : leftWords(left);
    if (lastMs !== null && !byId("lost").hidden) byId("lost").querySelector("b").textContent = words((Date.now() - lastMs) / 1000);
  }

  function leftWords(left) {
    const seconds = left.left_s - (now() - left.told_ms) / 1000;
    return seconds > 1 ? `about ${words(seconds)} left for all trials` : "about to end, later than expected";
  }

  function show(answer) {
    state = answer;
    clockMs = answer.now_ms - Date.now();
    const trial = answer.trial;
    byId("heading").textContent = trial === null ? "The run begins" : `${trial.title}: ${trial.summary}`;
    document.title = `${answer.ended ? "ended" : answer.phase.name} - streamgauge`;
    byId("place").textContent = answer.run || "";
    byId("count").textContent = answer.planned ? `${answer.done} of ${answer.planned} trials done` : "";
    byId("now").hidden = false;
    if (answer.second) showSecond(answer.second); else byId("second").replaceChildren();
    showVerdict(answer.verdict);
    addLines(answer.lines);
    addRows(answer.rows);
    if (answer.workloads) data.workloads = answer.workloads;
    if (answer.subjects) data.subjects = answer.subjects;
    addTrials(answer.trials);
    if (answer.subjects || answer.trials.length > 0) Report.show(data, answer.subjects !== null);
    tick();
  }

  function showLost() {
    const lost = byId("lost");
    if (!lost.hidden) return;
    lost.hidden = false;
    const where = state && state.run ? ` What was measured until then is in ${state.run}; if the lab is gone, “streamgauge report ${state.run}” makes its report.` : "";
    lost.replaceChildren(`The connection to the lab was lost at ${clock(Date.now())}. `,
      lastMs === null ? "No data had come." : `The last data came at ${clock(lastMs)}, `, element("b", ""), lastMs === null ? "" : " ago.", where);
    tick();
  }

  /* ---- the lab ---- */

  async function ask() {
    const answer = await fetch(`/state?since=${since}&viewer=${viewer}`, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.status === 503) return null; // No room now: the lab is there.
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  }

  async function follow() {
    while (!leaving) {
      let answer;
      try {
        answer = await ask();
      } catch {
        showLost();
        await pause(AGAIN_MS);
        continue;
      }
      if (answer === null) { await pause(AGAIN_MS); continue; }
      /* Another lab at the same address, or one that knows less than we do. */
      if (lab !== null && (answer.lab !== lab || answer.since !== since)) { location.reload(); return; }
      lab = answer.lab;
      since = answer.version;
      lastMs = Date.now();
      byId("lost").hidden = true;
      show(answer);
      if (answer.ended && answer.ended.report) {
        leaving = true;
        location.replace(`/report.html?viewer=${viewer}`);
      }
    }
  }

  setInterval(tick, 500);
  follow();
})();
