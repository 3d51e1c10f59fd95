"use strict";
// Charts of lines: laid out for the width at hand; a method is lit in all of them and in the tables, a click pins it.
oodml.figures = () => {
  const { all, make, announce, state, remember, listed, listen, changed, pin } = oodml;
  const TOP = 30, NAMED = 16;
  const numbers = (text) => (text || "").split(" ").filter(Boolean).map(Number);
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const round = (value) => Math.round(value * 10) / 10;
  let lit = "";
  const paper = document.createElement("canvas").getContext("2d"); // it tells the length of a text without laying out the page
  const long = (text) => paper.measureText(text).width;
  // the middle goes: frozen networks differ in how their names end
  const cut = (text, room) => {
    let shorter = text;
    for (let most = Math.min(text.length, Math.max(5, Math.ceil(1.5 * text.length * room / long(text)))); most > 4 && long(shorter) > room; most--) {
      shorter = text.slice(0, most - Math.floor(most / 2) - 1) + "…" + text.slice(-Math.floor(most / 2));
    }
    return shorter;
  };

  const apart = (heights, gap, low, high) => {
    const order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]);
    const placed = order.map((i) => heights[i]);
    for (let turn = 0, moved = true; moved && turn < 200; turn++) {
      moved = false;
      for (let i = 0; i + 1 < placed.length; i++) {
        const lack = gap - (placed[i + 1] - placed[i]);
        if (lack > 1e-6) { placed[i] -= lack / 2; placed[i + 1] += lack / 2; moved = true; }
      }
      const shift = placed[0] < low ? low - placed[0] :
        -Math.min(Math.max(0, placed[placed.length - 1] - high), placed[0] - low);
      placed.forEach((_, i) => { placed[i] += shift; });
    }
    const result = [];
    order.forEach((i, place) => { result[i] = placed[place]; });
    return result;
  };
  const ticks = (low, high, most) => {
    const power = 10 ** Math.floor(Math.log10((high - low) / most));
    const step = [1, 2, 5, 10].map((times) => times * power).find((one) => (high - low) / one <= most);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9; k++) found.push(Number((k * step).toFixed(6)));
    return found;
  };

  const charts = all("svg.lines").map((svg, number) => {
    const lines = all("g.line", svg).map((g) => {
      const find = (kind) => g.querySelector("." + kind);
      const told = document.createElementNS(svg.namespaceURI, "title");
      told.textContent = g.dataset.method + ": " + g.dataset.y.split(" ").join(", ");
      g.prepend(told);
      return { g, method: g.dataset.method, family: g.dataset.family, baseline: g.classList.contains("baseline"),
        named: !g.classList.contains("unnamed"), x: numbers(g.dataset.x === undefined ? svg.dataset.x : g.dataset.x), y: numbers(g.dataset.y), s: numbers(g.dataset.s), gaps: numbers(g.dataset.afterGap),
        band: find("band"), thin: find("gap"), stroke: find("stroke"), marks: find("marks"), tie: find("tie"), name: find("name"),
        text: find("name").textContent };
    });
    svg.insertAdjacentHTML("beforeend", '<clipPath id="clip-' + number + '"><rect/></clipPath>');
    const clip = svg.lastElementChild;
    const { downwards, slanted, zero, height, deep, left } = svg.dataset;
    const sign = downwards ? -1 : 1;
    const ranked = lines.filter((line) => !line.baseline).sort((a, b) => sign * (mean(b.y) - mean(a.y)));
    return { svg, lines, clip, ranked, downwards, slanted, zero, height: Number(height), deep: Number(deep), left: Number(left) };
  });
  if (charts.length === 0) return;

  const chosen = (chart) => {
    const [kind, family] = (state.get("show") || "all").split(":");
    const pins = listed("pin");
    if (kind === "top") return chart.lines.filter((line) => line.baseline || chart.ranked.indexOf(line) < 10 || pins.includes(line.method));
    if (kind !== "family") return chart.lines;
    return chart.lines.filter((line) => line.baseline || line.family === family || pins.includes(line.method));
  };

  const draw = (chart) => {
    const { svg, downwards, slanted, left } = chart;
    const box = svg.parentNode;
    const look = getComputedStyle(box);
    const width = Math.round(box.clientWidth - parseFloat(look.paddingLeft) - parseFloat(look.paddingRight));
    if (width < 100) return;
    const pins = new Set(listed("pin"));
    const shown = chosen(chart);
    const few = shown.length <= NAMED && shown.length < chart.lines.length;
    const named = shown.filter((line) => few || line.named || pins.has(line.method));
    const height = width < 480 && !downwards ? Math.min(chart.height, 300 + chart.deep) : chart.height;
    const letters = getComputedStyle(chart.lines[0].name);
    paper.font = "650 " + letters.fontSize + " " + letters.fontFamily; // as of one that is lit
    const right = Math.min(0.34 * width, 18 + Math.max(0, ...named.map((line) => long(line.text))));
    const wide = width - left - right, tall = height - TOP - chart.deep;
    const zoomed = state.get("zoom") && named.some((line) => !line.baseline);
    const ys = (zoomed ? named.filter((line) => !line.baseline) : chart.lines).flatMap((line) => line.y);
    if (ys.length === 0) return;
    const spare = downwards ? 0.5 : 0.04 * (Math.max(...ys) - Math.min(...ys)) || 1;
    const low = Math.min(...ys) - spare, high = Math.max(...ys) + spare;
    const across = (share) => round(left + wide * (0.02 + 0.0096 * share));
    const up = (y) => round(TOP + tall * (downwards ? (y - low) / (high - low) : (high - y) / (high - low)));
    svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    svg.style.height = height + "px";
    const clip = chart.clip.firstChild;
    for (const [key, value] of Object.entries({ x: left - 4, y: TOP - 5, width: wide + 8, height: tall + 10 })) clip.setAttribute(key, value);

    const grid = ticks(low, high, 6).filter((tick) => !downwards || Number.isInteger(tick)).map((tick) =>
      '<path d="M' + left + " " + up(tick) + "h" + round(wide) + '" stroke="var(--figure-grid)"/><text text-anchor="end" x="' + (left - 6) +
      '" y="' + (up(tick) + 4) + '">' + String(tick).replace("-", "−") + "</text>").join("");
    const line0 = chart.zero && low < 0 && high > 0 ?
      '<path class="zero" d="M' + left + " " + up(0) + "h" + round(wide) + '" stroke="var(--figure-grey)" stroke-dasharray="3 3"/>' : "";
    svg.querySelector(".scale").innerHTML = grid + line0;
    const floor = TOP + tall;
    const marks = all(".tick", svg);
    const places = marks.map((mark) => across(Number(mark.dataset.x)));
    const spread = slanted ? apart(places, 17, places[0], width) : places;
    let before = -Infinity;
    marks.forEach((mark, i) => {
      const [path, text] = [mark.querySelector("path"), mark.querySelector("text")];
      path.setAttribute("d", "M" + places[i] + " " + (floor - 5) + "v5L" + round(spread[i]) + " " + (floor + 5));
      if (slanted) { text.setAttribute("transform", "translate(" + round(spread[i] + 4) + " " + (floor + 18) + ") rotate(-40)"); return; }
      const crowded = i > 0 && i < marks.length - 1 && (places[i] - before < 44 || places[marks.length - 1] - places[i] < 44);
      if (!crowded) before = places[i];
      text.setAttribute("display", crowded ? "none" : "inline");
      text.setAttribute("x", places[i]);
      text.setAttribute("y", floor + 18);
    });
    for (const mark of all(".mark", svg)) {
      const x = across(Number(mark.dataset.x));
      mark.querySelector("path").setAttribute("d", "M" + x + " " + TOP + "V" + floor);
      mark.querySelector("text").setAttribute("x", x + 5);
    }
    const [head, below] = [svg.querySelector(".head"), svg.querySelector(".below")];
    for (const text of [head, below]) { // whole, on a phone too
      const size = width < 480 ? 10.5 : 12;
      text.setAttribute("font-size", size);
      text.setAttribute("font-size", round(size * Math.min(1, (width - 12) / text.getComputedTextLength())));
    }
    below.setAttribute("y", height - 6);
    below.setAttribute("x", Math.max(left + wide / 2, below.getComputedTextLength() / 2 + 2));

    const inside = (line) => line.y[line.y.length - 1] >= low && line.y[line.y.length - 1] <= high;
    const last = (line) => line.x[line.x.length - 1];
    const end = Math.max(...chart.lines.map(last));
    const heights = new Map();
    for (const share of new Set(chart.lines.map(last))) {
      const labelled = named.filter((line) => inside(line) && last(line) === share);
      const placed = apart(labelled.map((line) => up(line.y[line.y.length - 1])), 15, share === end ? TOP : TOP + 20, floor);
      labelled.forEach((line, i) => heights.set(line, placed[i]));
    }
    for (const line of chart.lines) {
      const points = line.x.map((x, i) => [across(x), up(line.y[i])]);
      const [x, y] = points[points.length - 1];
      const at = [last(line) === end ? left + wide + 14 : x + 14, heights.has(line) ? heights.get(line) : y];
      Object.assign(line, { points, at });
      line.g.style.display = shown.includes(line) && (inside(line) || !line.baseline) ? "" : "none";
      line.g.classList.toggle("own", few);
      line.g.classList.toggle("nameless", !inside(line));
      const stretches = [0, ...line.gaps].map((start, i) => [start, i < line.gaps.length ? line.gaps[i] : points.length]);
      const path = (some) => "M" + some.map((point) => point.join(" ")).join("L");
      line.stroke.setAttribute("d", stretches.map(([start, stop]) => path(points.slice(start, stop))).join(""));
      if (line.thin) line.thin.setAttribute("d", line.gaps.map((i) => path([points[i - 1], points[i]])).join(""));
      if (line.marks) line.marks.setAttribute("d", points.map((point) => "M" + point.join(" ") + line.marks.dataset.shape).join(""));
      if (line.band) {
        const edge = (side) => points.map(([x], i) => [x, up(line.y[i] + side * line.s[i])]);
        const bar = (some) => (some.length > 1 ? some : [[some[0][0] - 2, some[0][1]], [some[0][0] + 2, some[0][1]]]);
        const [above, under] = [edge(1), edge(-1)];
        line.band.setAttribute("d", stretches.map(([start, stop]) =>
          path([...bar(above.slice(start, stop)), ...bar(under.slice(start, stop)).reverse()]) + "z").join(""));
      }
      for (const part of [line.thin, line.stroke, line.marks, line.band]) if (part) part.setAttribute("clip-path", "url(#" + chart.clip.id + ")");
      line.tie.setAttribute("d", "M" + x + " " + y + "L" + (at[0] - 4) + " " + round(at[1]));
      const room = width - at[0] - 2;
      const alone = !named.includes(line) && long(line.text) > room; // shown while it is lit: it has room to its left
      line.name.textContent = cut(line.text, alone ? width - 4 : room);
      line.name.setAttribute("text-anchor", alone ? "end" : "start");
      line.name.setAttribute("x", alone ? width - 2 : at[0]);
      line.name.setAttribute("y", round(at[1]) + 4);
    }
    chart.bounds = { width, wide, end: across(end) };
  };

  const named = new Map();
  for (const element of all("[data-method]")) named.set(element.dataset.method, [...(named.get(element.dataset.method) || []), element]);
  const focus = () => {
    const pins = new Set(listed("pin"));
    for (const { svg, lines } of charts) {
      svg.classList.toggle("focus", lines.some((line) => line.method === lit || pins.has(line.method)));
      for (const line of lines) line.g.setAttribute("aria-pressed", String(pins.has(line.method)));
    }
    for (const [method, elements] of named) elements.forEach((element) => element.classList.toggle("pinned", pins.has(method)));
  };
  const light = (method) => {
    if (method === lit) return;
    for (const [name, on] of [[lit, false], [method, true]]) (named.get(name) || []).forEach((one) => one.classList.toggle("lit", on));
    lit = method;
    focus();
  };

  const nearest = (chart, event) => {
    const box = chart.svg.getBoundingClientRect();
    const scale = chart.bounds.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = null, least = 22;
    for (const line of chart.lines) {
      if (line.g.style.display === "none") continue;
      const points = line.points;
      let height = null;
      if (x > chart.bounds.end + 8) height = getComputedStyle(line.name).display === "none" || line.g.classList.contains("nameless") ? null : line.at[1];
      else if (points.length === 1) height = Math.abs(points[0][0] - x) < 20 ? points[0][1] : null;
      for (let i = 0; height === null && x <= chart.bounds.end + 8 && i + 1 < points.length; i++) {
        const [[a, from], [b, to]] = [points[i], points[i + 1]];
        if (x >= a - (i ? 0 : 8) && x <= b + (i + 2 === points.length ? 8 : 0)) height = from + (to - from) * Math.min(1, Math.max(0, (x - a) / (b - a)));
      }
      if (height !== null && Math.abs(height - y) < least) [best, least] = [line.method, Math.abs(height - y)];
    }
    return best;
  };

  const families = [...new Set(charts.flatMap((chart) => chart.lines.map((line) => line.family)))].filter((name) => name && name !== "baseline").sort();
  const most = Math.max(...charts.map((chart) => chart.lines.length));
  for (const chart of charts) {
    const { svg, ranked, lines } = chart;
    const order = [...ranked, ...lines.filter((line) => line.baseline)];
    svg.setAttribute("role", "group");
    order.forEach((line, i) => {
      const attributes = { tabindex: i ? "-1" : "0", role: "button", "aria-label": "Pin " + line.g.querySelector("title").textContent };
      for (const [key, value] of Object.entries(attributes)) line.g.setAttribute(key, value);
      line.g.addEventListener("focus", () => light(line.method));
      line.g.addEventListener("blur", () => light(""));
      line.g.addEventListener("keydown", (event) => {
        if (["Enter", " "].includes(event.key)) { event.preventDefault(); pin(line.method); }
        const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        for (let at = i + step; order[at]; at += step) if (order[at].g.style.display !== "none") { order[at].g.focus(); break; }
      });
    });
    svg.addEventListener("pointermove", (event) => light(nearest(chart, event) || ""));
    svg.addEventListener("pointerleave", () => light(""));
    svg.addEventListener("click", (event) => { const method = nearest(chart, event); if (method) pin(method); });
    new ResizeObserver(() => draw(chart)).observe(svg.parentNode);
    if (most < 4) continue;
    const options = [["", "all"], ["top", "top 10"], ...families.map((name) => ["family:" + name, name])];
    const select = make("select", { "aria-label": "Which methods the figures show", "data-show": true, onchange: () => {
      remember("show", select.value);
      changed();
      announce("Figures show " + select.selectedOptions[0].textContent);
    } }, ...options.map(([value, text]) => make("option", { value }, text)));
    const zoom = make("button", { type: "button", "data-zoom": true, title: "The value axis spans the methods that are named", onclick: () => {
      remember("zoom", state.get("zoom") ? "" : "1");
      changed();
    } }, "Zoom");
    svg.closest("figure").querySelector("figcaption").prepend(make("span", { class: "figtools" }, "Show ", select, zoom));
  }

  const row = (event) => event.target.closest && event.target.closest("tr[data-method]");
  for (const [enter, leave] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
    document.addEventListener(enter, (event) => { if (row(event)) light(row(event).dataset.method); });
    document.addEventListener(leave, (event) => { if (row(event)) light(""); });
  }
  const apply = () => {
    for (const select of all("[data-show]")) select.value = state.get("show") || "";
    for (const button of all("[data-zoom]")) button.setAttribute("aria-pressed", String(Boolean(state.get("zoom"))));
    charts.forEach(draw);
    focus();
  };
  listen(apply);
  apply();
};
document.addEventListener("DOMContentLoaded", oodml.figures);
