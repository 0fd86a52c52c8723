"use strict";
(() => {
  const data = JSON.parse(document.getElementById("moments").textContent);
  const slider = document.getElementById("moment"), said = document.getElementById("said"), values = document.getElementById("values");
  const rows = [...document.querySelectorAll("[data-line]")];
  const picture = document.querySelector("#by-time svg"), SVG = "http://www.w3.org/2000/svg";
  const make = (name, attributes, space) => {
    const made = space ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const cursor = make("line", { class: "cursor", y1: 0, y2: picture ? picture.querySelector(".grid").getAttribute("y2") : 0 }, true);
  if (picture) picture.append(cursor);
  const drawn = new Map();
  function heat(moment) {
    const numbers = moment.numbers.map((text) => Number(text.replace("inf", "Infinity")));
    const finite = numbers.filter(Number.isFinite), low = Math.min(...finite), span = Math.max(...finite) - low || 1;
    const height = Math.ceil(numbers.length / moment.columns);
    const image = make("svg", { viewBox: `0 0 ${moment.columns} ${height}`, role: "img", preserveAspectRatio: "none",
      "aria-label": `${moment.name}: ${numbers.length} elements by size` }, true);
    image.style.aspectRatio = `${moment.columns} / ${height}`;
    numbers.forEach((number, place) => {
      const cell = make("rect", { x: place % moment.columns, y: Math.floor(place / moment.columns), width: 0.96, height: 0.96,
        class: Number.isFinite(number) ? "cell" : "cell none", "fill-opacity": Number.isFinite(number) ? 0.12 + 0.88 * (number - low) / span : 1 }, true);
      const title = make("title", {}, true);
      title.textContent = `${moment.name}${data.layouts[moment.key][place]}: ${moment.numbers[place]}`;
      cell.append(title);
      image.append(cell);
    });
    return image;
  }
  function entry(moment) {
    const found = make("div", { class: "value" }), head = make("div", {}), name = make("strong", {}), kind = make("code", {});
    name.textContent = moment.name;
    kind.textContent = ` ${moment.type}${moment.agent === "the program" ? "" : ` of ${moment.agent}`}`;
    const range = make("span", { class: "quiet" });
    range.textContent = ` ${moment.range}${moment.layout ? `; ${moment.layout}` : ""}`;
    head.append(name, kind, range);
    found.append(head);
    if (moment.numbers) found.append(heat(moment));
    return found;
  }
  function show() {
    const at = Number(slider.value), moment = data.moments[at];
    if (!moment) return;
    said.textContent = `${at + 1} of ${data.moments.length}: ${moment.text}`;
    slider.setAttribute("aria-valuetext", said.textContent);
    for (const row of rows) row.dataset.at = row.dataset.line === moment.line ? "now" : "";
    const now = rows.find((row) => row.dataset.line === moment.line);
    if (now) {
      const box = now.closest(".source");
      if (now.offsetTop < box.scrollTop || now.offsetTop > box.scrollTop + box.clientHeight - 30) box.scrollTop = now.offsetTop - 60;
    }
    const last = new Map();
    for (const [place, each] of data.moments.slice(0, at + 1).entries())
      if (each.name) { const key = `${each.agent} ${each.name}`; last.delete(key); last.set(key, place); }
    const places = [...last.values()].reverse().slice(0, 12);
    for (const place of places) if (!drawn.has(place)) drawn.set(place, entry(data.moments[place]));
    values.replaceChildren(...places.map((place) => { drawn.get(place).dataset.at = place === at ? "now" : ""; return drawn.get(place); }));
    const x = data.left + Math.min(moment.event, data.shown) * data.step;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    const by_time = document.getElementById("by-time");
    if (by_time && (x < by_time.scrollLeft || x > by_time.scrollLeft + by_time.clientWidth - 40)) by_time.scrollLeft = x - data.left - 20;
  }
  slider.max = Math.max(data.moments.length - 1, 0);
  slider.addEventListener("input", show);
  for (const button of document.querySelectorAll("[data-move]"))
    button.addEventListener("click", () => { slider.value = Number(slider.value) + Number(button.dataset.move); show(); });
  show();
})();
