"use strict";
/* Charts for whoever cannot see them or uses no mouse: a name with a sentence of what is drawn, arrow keys for what the cursor tells, + and - for the
   zoom, a button that resets it, and a table of the points behind each chart. */

const Reading = (() => {
  const ROWS_MAX = 60, TOLD_MAX = 6, SPOKEN_MAX = 4;
  const KEYS = "Arrow keys read the points, Home and End the first and last";
  const ZOOM_KEYS = "; plus and minus zoom, Escape shows everything";

  const live = document.createElement("p");
  live.className = "unseen";
  live.setAttribute("aria-live", "polite");
  document.body.appendChild(live);

  const lines = (plot) => plot.series.map((series, index) => [series, index]).filter(([series, index]) => index > 0 && !series.silent);
  const valueOf = (plot, series, index, at) => (series.told || plot.data[index])[at];
  const known = (value) => value !== null && value !== undefined;

  function titleOf(element) {
    const heading = element.closest("figure").querySelector("h3");
    return [...heading.childNodes].filter((node) => node.nodeName !== "EM" && node.nodeName !== "I").map((node) => node.textContent).join("").trim();
  }

  /* What is drawn, in a sentence: of each line the smallest and the largest value. */
  function sentence(element, plot, show) {
    const told = lines(plot).slice(0, TOLD_MAX).map(([series, index]) => {
      const values = (series.told || plot.data[index]).filter(known);
      if (values.length === 0) return `${series.label}: no values`;
      const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
      return `${series.label}: ${low === high ? show(low) : `${show(low)} to ${show(high)}`}`;
    });
    const more = lines(plot).length - TOLD_MAX;
    return `${titleOf(element)}. ${told.join("; ")}${more > 0 ? `; and ${more} more` : ""}.`;
  }

  /* At most ROWS_MAX rows; of neighbours the largest stays, because spikes are what is looked for. */
  function rows(plot) {
    const times = plot.data[0], stride = Math.ceil(times.length / ROWS_MAX);
    const found = [];
    for (let from = 0; from < times.length; from += stride) {
      const until = Math.min(times.length, from + stride);
      found.push([times[from], ...lines(plot).map(([series, index]) => {
        let most = null;
        for (let at = from; at < until; at += 1) {
          const value = valueOf(plot, series, index, at);
          if (known(value) && (most === null || value > most)) most = value;
        }
        return most;
      })]);
    }
    return [found, stride];
  }

  function cell(kind, text, scope) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (scope) made.scope = scope;
    if (kind === "td") made.className = "number";
    return made;
  }

  function table(element, plot, told) {
    const [found, stride] = rows(plot);
    const made = document.createElement("table"), head = document.createElement("thead"), body = document.createElement("tbody");
    made.className = "plain";
    const caption = document.createElement("caption");
    caption.textContent = titleOf(element) + (stride > 1 ? `: the largest of ${stride} points in each row` : "");
    const titles = document.createElement("tr");
    titles.append(cell("th", "at", "col"), ...lines(plot).map(([series]) => cell("th", series.label, "col")));
    head.appendChild(titles);
    for (const [at, ...values] of found) {
      const row = document.createElement("tr");
      row.append(cell("th", told.titleOf(at), "row"), ...values.map((value) => cell("td", value === null ? "-" : told.show(value))));
      body.appendChild(row);
    }
    made.append(caption, head, body);
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", caption.textContent);
    scroll.appendChild(made);
    return scroll;
  }

  /* The table is made when it is opened: most are not. */
  function behind(element, plot, told, words) {
    const figure = element.closest("figure");
    const old = figure.querySelector("details.behind");
    const made = document.createElement("details"), summary = document.createElement("summary"), text = document.createElement("p");
    made.className = "behind";
    summary.textContent = "In words and figures";
    text.className = "hint";
    text.textContent = words;
    made.append(summary, text);
    made.addEventListener("toggle", () => {
      if (made.open && !made.querySelector("table")) made.appendChild(table(element, plot, told));
    });
    if (old) {
      made.open = old.open;
      old.replaceWith(made);
    } else {
      figure.appendChild(made);
    }
  }

  function say(element, plot, told, at) {
    const values = lines(plot).map(([series, index]) => [series.label, valueOf(plot, series, index, at)]).filter(([, value]) => known(value));
    const spoken = values.slice(0, SPOKEN_MAX).map(([label, value]) => `${label} ${told.show(value)}`).join(", ");
    live.textContent = `${told.titleOf(plot.data[0][at])}: ${spoken || "no value"}`;
  }

  function show(plot, at) {
    plot.setCursor({ left: plot.valToPos(plot.data[0][at], "x"), top: plot.over.clientHeight / 2 });
  }

  function everything(plot) {
    const times = plot.data[0];
    plot.setScale("x", { min: times[0], max: times[times.length - 1] });
  }

  function zoom(plot, at, factor) {
    const times = plot.data[0], first = times[0], last = times[times.length - 1];
    const half = Math.max(1, ((plot.scales.x.max - plot.scales.x.min) / 2) * factor), middle = times[at];
    plot.setScale("x", { min: Math.max(first, middle - half), max: Math.min(last, middle + half) });
  }

  function within(plot, at) {
    const { min, max } = plot.scales.x;
    if (plot.data[0][at] < min || plot.data[0][at] > max) everything(plot);
  }

  function onKey(event, element, plot, told, zooms) {
    const last = plot.data[0].length - 1;
    const from = known(plot.cursor.idx) ? plot.cursor.idx : -1;
    const far = Math.max(1, Math.round(last / 10));
    const moves = { ArrowRight: from + 1, ArrowLeft: from - 1, PageDown: from + far, PageUp: from - far, Home: 0, End: last };
    if (event.key in moves) {
      const at = Math.min(last, Math.max(0, moves[event.key]));
      within(plot, at);
      show(plot, at);
      say(element, plot, told, at);
    } else if (zooms && ["+", "=", "-"].includes(event.key)) {
      zoom(plot, Math.max(0, from), event.key === "-" ? 2 : 0.5);
      live.textContent = `shown: ${told.titleOf(plot.scales.x.min)} to ${told.titleOf(plot.scales.x.max)}`;
    } else if (zooms && event.key === "Escape") {
      everything(plot);
      live.textContent = "everything is shown";
    } else {
      return;
    }
    event.preventDefault();
  }

  /* The button is there while less than everything is shown. */
  function reset(element, plot, isZoomed) {
    const figure = element.closest("figure");
    let button = figure.querySelector("button.reset");
    if (!isZoomed) {
      if (button) button.remove();
      return;
    }
    if (button) return;
    button = document.createElement("button");
    button.type = "button";
    button.className = "chip reset";
    button.textContent = "Reset zoom";
    button.addEventListener("click", () => { everything(plot); element.focus(); });
    figure.insertBefore(button, element);
  }

  /* A plugin of uPlot, for the chart in `element`. `told`: titleOf and show, as the tooltip has them. */
  function plugin(element, told, zooms) {
    let full = null;
    return { hooks: {
      ready: [(plot) => {
        full = [plot.scales.x.min, plot.scales.x.max];
        const words = sentence(element, plot, told.show);
        element.tabIndex = 0;
        element.setAttribute("role", "application");
        element.setAttribute("aria-roledescription", "chart");
        element.setAttribute("aria-label", `${words} ${KEYS}${zooms ? ZOOM_KEYS : ""}.`);
        element.onkeydown = (event) => onKey(event, element, plot, told, zooms);
        element.onblur = () => plot.setCursor({ left: -10, top: -10 });
        behind(element, plot, told, words);
        reset(element, plot, false);
      }],
      setScale: [(plot, key) => {
        if (key !== "x" || full === null) return;
        reset(element, plot, plot.scales.x.min > full[0] || plot.scales.x.max < full[1]);
      }],
    } };
  }

  /* A chart that has nothing to show is a sentence. */
  function nothing(element) {
    for (const name of ["tabindex", "role", "aria-roledescription", "aria-label"]) element.removeAttribute(name);
    element.onkeydown = element.onblur = null;
    const figure = element.closest("figure");
    for (const one of figure.querySelectorAll("details.behind, button.reset")) one.remove();
  }

  return { plugin, nothing };
})();
