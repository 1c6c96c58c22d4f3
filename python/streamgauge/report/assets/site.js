"use strict";
/* Narrows the list of results, and leads from what is ticked to its comparison. */
(() => {
  const filters = document.getElementById("filters"), selects = [...filters.querySelectorAll("select")];
  const rows = [...document.querySelectorAll("#results tbody tr")], compare = document.getElementById("compare");
  const count = document.getElementById("count"), none = document.getElementById("none");
  filters.hidden = false;
  const narrow = () => {
    let shown = 0;
    for (const row of rows) {
      row.hidden = selects.some((select) => select.value && row.dataset[select.dataset.filter] !== select.value);
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = (shown === rows.length ? "" : `${shown} of `) + `${rows.length} result${rows.length === 1 ? "" : "s"}`;
    none.hidden = shown > 0;
  };
  const ticked = () => {
    const picked = rows.flatMap((row) => [...row.querySelectorAll("input:checked")].map((box) => box.value));
    compare.href = "compare.html" + (picked.length ? "#" + [...new Set(picked)].join(",") : "");
  };
  selects.forEach((select) => select.addEventListener("change", narrow));
  rows.forEach((row) => row.addEventListener("change", ticked));
  narrow();
  ticked();
  document.documentElement.dataset.ready = "yes";
})();
