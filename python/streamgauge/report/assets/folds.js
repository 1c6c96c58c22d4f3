"use strict";
/* Sections that fold. On a phone those that back up what stands above are folded at first, so that a report is read and not scrolled through; a link into one
   opens it, and paper has all of them (but not the points behind each chart). */

(() => {
  const all = () => [...document.querySelectorAll("details:not(.behind)")];
  if (matchMedia("(max-width: 760px)").matches) {
    for (const one of document.querySelectorAll("details.fold")) one.open = false;
  }
  function reveal() {
    let target = null;
    try { target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null; } catch { /* A hash that is no text. */ }
    if (!target) return;
    for (const inner of target.querySelectorAll(":scope > details.fold")) inner.open = true;
    for (let one = target.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  /* A link to where one is already changes no hash. */
  document.addEventListener("click", (event) => { if (event.target.closest("a[href^='#']")) setTimeout(reveal); });
  reveal();
  addEventListener("beforeprint", () => { for (const one of all()) { one.dataset.was = one.open ? "open" : ""; one.open = true; } });
  addEventListener("afterprint", () => { for (const one of all()) one.open = one.dataset.was === "open"; });
})();
