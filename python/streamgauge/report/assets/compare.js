"use strict";
/* Shows the comparisons of what is picked: everything was computed and drawn ahead, this puts it into place. Texts are set as texts. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const known = new Map(data.sides.map((side) => [side.number, side]));
  const boxes = [...document.querySelectorAll("#sides input")];
  const places = Object.fromEntries([...document.querySelectorAll("[data-place]")].map((place) => [place.dataset.place, place]));
  const made = (name, text, className) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const table = (caption, heads, rows) => {
    const region = made("div", undefined, "scroll"), found = made("table", undefined, "stack");
    region.tabIndex = 0;
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", caption);
    found.append(made("caption", caption));
    const head = found.createTHead().insertRow();
    heads.forEach((text) => { const cell = made("th", text); cell.scope = "col"; head.append(cell); });
    const body = found.createTBody();
    for (const [name, ...values] of rows) {
      const line = body.insertRow(), first = made("th", name);
      first.scope = "row";
      line.append(first);
      values.forEach((value, at) => { const cell = made("td", value); cell.dataset.label = heads[at + 1]; line.append(cell); });
    }
    region.append(found);
    return region;
  };
  const beside = (sides, part) => {
    const names = [...new Set(sides.flatMap((side) => Object.keys(side[part])))];
    return names.map((name) => [name, ...sides.map((side) => side[part][name] ?? "-")]);
  };
  const differs = ([, ...values]) => new Set(values).size > 1;
  const machines = (sides, heads) => {
    const rows = beside(sides, "machine"), apart = rows.filter(differs), kinds = new Set(sides.map((side) => side.machine.class));
    const told = kinds.size > 1
      ? `Measured on machines of different classes, so that a difference may be the machine's: ${[...kinds].join(" | ")}.`
      : `Machines of one class (${[...kinds][0]}); what the probes measured differs in ${apart.length} of ${rows.length} rows.`;
    return [made("p", told, kinds.size > 1 ? "notice warn" : "notice"), table("What each machine is, and what it could do around its run", ["machine", ...heads], rows)];
  };
  const settings = (sides, heads) => {
    const rows = beside(sides, "settings"), apart = rows.filter(differs), alike = rows.filter((row) => !differs(row));
    const rest = made("details", undefined, "all");
    rest.append(made("summary", `${alike.length} that are alike`), table("What is alike", ["setting", ...heads], alike));
    return [apart.length ? table("What differs", ["setting", ...heads], apart) : made("p", "Nothing differs in what was asked for and read back.", "notice"), rest];
  };
  const ratios = ([base, ...others]) => others.map((other) => {
    const pair = document.getElementById(`pair-${base.number}-${other.number}`);
    return pair ? pair.content.cloneNode(true) : made("p", `${other.name} and ${base.name} have no workload in common.`, "notice");
  });
  const show = () => {
    const sides = boxes.filter((box) => box.checked).map((box) => known.get(Number(box.value))).sort((a, b) => a.number - b.number);
    const heads = sides.map((side) => side.name), hint = () => [made("p", "Pick two or more.", "hint")];
    const enough = sides.length > 1;
    places.machines.replaceChildren(...(enough ? machines(sides, heads) : hint()));
    places.ratios.replaceChildren(...(enough ? ratios(sides) : hint()));
    places.settings.replaceChildren(...(enough ? settings(sides, heads) : hint()));
  };
  const pick = () => {
    const wanted = new Set(location.hash.slice(1).split(",").filter((text) => /^\d+$/.test(text)).map(Number));
    boxes.forEach((box) => { box.checked = wanted.has(Number(box.value)); });
    if (wanted.size > 1) document.getElementById("picker").open = false;
    show();
  };
  boxes.forEach((box) => box.addEventListener("change", () => {
    history.replaceState(null, "", "#" + boxes.filter((one) => one.checked).map((one) => one.value).join(","));
    show();
  }));
  addEventListener("hashchange", () => { if (/^#\d/.test(location.hash)) pick(); });
  pick();
  document.documentElement.dataset.ready = "yes";
})();
