"use strict";
/* The theme follows the system until the reader chooses; nothing else on this page needs a script. */
(() => {
  const button = document.getElementById("theme"), root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; });
})();
