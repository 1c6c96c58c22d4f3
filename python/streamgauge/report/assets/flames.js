"use strict";
/* Flame graphs: outermost functions on top. One box is in the tab order; arrow keys walk along the calls, Enter makes a box as wide as the graph, Escape shows
   all of it again. A graph is drawn when it is opened. */

(() => {
  const island = document.getElementById("flames");
  if (!island) return;
  const graphs = JSON.parse(island.textContent);
  const NARROWEST = 0.0015, LINE_PX = 21;
  const KEYS = "Arrow keys walk along the calls, Enter zooms, Escape shows everything.";

  /* Names of one package have one tone, so that what belongs together is seen as such. */
  function tone(name) {
    const parts = name.split(/[.:]+/);
    const family = / \[kernel\]$/.test(name) ? "kernel" : parts.slice(0, Math.min(3, Math.max(1, parts.length - 2))).join(".");
    let sum = 0;
    for (const character of family) sum = (sum * 31 + character.codePointAt(0)) % 9973;
    return sum % 6;
  }
  const short = (name) => {
    if (!/[.:]/.test(name) || / \[kernel\]$/.test(name)) return name.replace(/\.(?:isra|part|constprop)\.\d+/g, "");
    const parts = name.replace(/<.*>/, "").split(/[.:]+/).filter(Boolean);
    return parts.length > 1 ? parts.slice(-2).join(".") : name;
  };
  const percent = (share) => `${(100 * share).toFixed(1)} %`;

  /* Where each call begins: calls of one function stand side by side from its left edge on. */
  function laidOut(graph, of) {
    const whole = of === "all" ? graph.slowest + graph.rest : graph.slowest;
    const ends = [], stack = [], boxes = [];
    for (const [name, depth, slowest, rest] of graph.nodes) {
      const samples = of === "all" ? slowest + rest : slowest;
      stack.length = Math.min(stack.length, depth);
      const parent = depth > 0 ? stack[depth - 1] : null;
      if (depth > 0 && !parent) continue;
      const from = parent ? (ends[depth] !== undefined && ends[depth][0] === parent ? ends[depth][1] : parent.from) : (ends[0] ? ends[0][1] : 0);
      const box = { name: graph.names[name], depth, from, samples, share: samples / whole, parent,
        slowest: graph.slowest ? slowest / graph.slowest : null, rest: graph.rest ? rest / graph.rest : null, inner: [] };
      ends[depth] = [parent, from + samples];
      stack[depth] = box;
      if (samples > 0) {
        if (parent) parent.inner.push(box);
        boxes.push(box);
      }
    }
    return { boxes, whole };
  }

  function told(box, of) {
    const beside = of === "slowest" && box.rest !== null ? `; ${percent(box.rest)} in the rest` : "";
    return `${box.name}: ${percent(box.share)} of the samples${beside}`;
  }

  function draw(place, graph, of) {
    const { boxes, whole } = laidOut(graph, of);
    const name = of === "all" ? "measured phase" : "slowest seconds";
    const largest = boxes.filter((box) => box.depth > 0 && box.inner.length === 0).reduce((best, box) => (!best || box.share > best.share ? box : best), null);
    const area = document.createElement("div"), high = document.createElement("div"), line = document.createElement("p"), reset = document.createElement("button");
    area.className = "calls";
    high.className = "drawn";
    area.setAttribute("role", "group");
    area.setAttribute("aria-label", `Flame graph of ${graph.title}, ${name}: ${whole} samples.${largest ? ` The largest innermost function is ${told(largest, "all")}.` : ""} ${KEYS}`);
    line.className = "hint called";
    reset.type = "button";
    reset.className = "chip reset";
    reset.textContent = "Show everything";
    reset.hidden = true;
    area.appendChild(high);
    place.replaceChildren(area, line, reset);
    if (boxes.length === 0) {
      line.textContent = "No samples.";
      return;
    }
    const roots = boxes.filter((box) => !box.parent);
    let zoomed = null, current = roots[0];

    const say = (box) => { line.textContent = told(box, of); };
    const widthOf = () => (zoomed ? zoomed.samples : whole);
    const above = (box, other) => { for (let one = other; one; one = one.parent) if (one === box) return true; return false; };

    function focus(box) {
      if (!box || !box.element) return;
      current.element.tabIndex = -1;
      current = box;
      box.element.tabIndex = 0;
      box.element.focus();
      say(box);
    }

    function zoom(box) {
      zoomed = box;
      show();
      reset.hidden = !box;
      focus(box || roots[0]);
    }

    function beside(box, step) {
      const row = boxes.filter((one) => one.depth === box.depth && one.element);
      return row[row.indexOf(box) + step];
    }

    function show() {
      high.replaceChildren();
      let deepest = 0;
      const left = zoomed ? zoomed.from : 0, width = widthOf();
      for (const box of boxes) {
        box.element = null;
        const isCaller = zoomed && above(box, zoomed);
        if (zoomed && !isCaller && !above(zoomed, box)) continue;
        const share = isCaller ? 1 : box.samples / width;
        if (share < NARROWEST) continue;
        const made = document.createElement("button");
        made.type = "button";
        made.tabIndex = -1;
        made.className = `call tone-${tone(box.name)}`;
        if (isCaller && box !== zoomed) made.classList.add("caller");
        if (of === "slowest" && graph.more.includes(box.name)) made.classList.add("more");
        made.style.left = `${isCaller ? 0 : 100 * (box.from - left) / width}%`;
        made.style.width = `${100 * share}%`;
        made.style.top = `${box.depth * LINE_PX}px`;
        made.textContent = short(box.name);
        made.setAttribute("aria-label", told(box, of));
        made.addEventListener("click", () => zoom(box === zoomed ? null : box));
        made.addEventListener("focus", () => say(box));
        made.addEventListener("mouseenter", () => say(box));
        box.element = made;
        deepest = Math.max(deepest, box.depth);
        high.appendChild(made);
      }
      high.style.height = `${(deepest + 1) * LINE_PX + 2}px`;
      if (!current.element) current = zoomed || roots[0];
      current.element.tabIndex = 0;
    }

    area.addEventListener("keydown", (event) => {
      const drawn = (list) => list.find((one) => one.element);
      const go = {
        ArrowDown: () => focus(drawn(current.inner)),
        ArrowUp: () => focus(current.parent),
        ArrowLeft: () => focus(beside(current, -1)),
        ArrowRight: () => focus(beside(current, 1)),
        Home: () => focus(roots[0]),
        Escape: () => zoom(null),
      }[event.key];
      if (!go) return;
      event.preventDefault();
      go();
    });
    reset.addEventListener("click", () => zoom(null));
    show();
    say(largest || roots[0]);
  }

  for (const one of document.querySelectorAll("details[data-flames]")) {
    const graph = graphs[one.dataset.flames];
    const drawAll = () => {
      if (!one.open || one.dataset.drawn) return;
      one.dataset.drawn = "yes";
      for (const place of one.querySelectorAll(".flame")) draw(place, graph, place.dataset.of);
    };
    one.addEventListener("toggle", drawAll);
    drawAll();
  }
})();
