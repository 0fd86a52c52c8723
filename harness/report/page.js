"use strict";
(() => {
  const rows = [...document.querySelectorAll("#table tbody tr")];
  const cases = [...document.querySelectorAll(".listed tbody tr")];
  const text = document.getElementById("filter-text");
  const target = document.getElementById("filter-target");
  const buttons = [...document.querySelectorAll("[data-decision]")];
  const count = document.getElementById("filter-count");
  let decision = "all";
  function filter() {
    const part = text.value.trim().toLowerCase();
    let shown = 0;
    for (const row of [...cases, ...rows]) {
      const kept =
        row.dataset.contract.toLowerCase().includes(part) &&
        (!target.value || row.dataset.target === target.value) &&
        (decision === "all" || row.dataset.decisions.split(";").includes(decision));
      row.hidden = !kept;
      if (row.closest("#table")) shown += kept;
    }
    count.textContent = `${shown} of ${rows.length} lines`;
  }
  for (const button of buttons) {
    button.addEventListener("click", () => {
      decision = button.dataset.decision;
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
      filter();
    });
  }
  const bySeconds = document.getElementById("by-seconds");
  if (bySeconds) {
    bySeconds.addEventListener("click", () => {
      const pressed = bySeconds.getAttribute("aria-pressed") !== "true";
      bySeconds.setAttribute("aria-pressed", String(pressed));
      const seconds = (row) => Number(row.cells[2].textContent);
      const order = pressed ? [...cases].sort((a, b) => seconds(b) - seconds(a)) : cases;
      order.forEach((row) => row.parentElement.append(row));
    });
  }
  function reveal() {
    const place = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    const folded = place && place.closest("details");
    if (!folded) return;
    folded.open = true;
    place.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  reveal();
  if (text) {
    text.addEventListener("input", filter);
    target.addEventListener("change", filter);
    document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  }
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", () => {
      const code = button.parentElement.querySelector("code");
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(() => (button.textContent = "copied"), () => {});
    });
  }
})();
