"use strict";
// Two methods or more side by side: paired differences on every split, with the intervals that the page carries.
document.addEventListener("DOMContentLoaded", () => {
  const { all, make, announce, remember, listed } = oodml;
  const section = document.querySelector("[data-compare]");
  const { labels, ids, hues, backbones, cells, metric } = JSON.parse(document.getElementById("compare-data").textContent);
  const [target, sum, figures, choices] = ["board", "sum", "figures", "choices"].map((part) =>
    section.querySelector("[data-compare-" + part + "]"));
  const search = document.getElementById("compare-search");
  let chosen = [];
  // a row without a hue, or whose hue one chosen before it has, takes the first that no other chosen row has
  const colour = (place) => {
    const own = (row) => hues[row] >= 0 && chosen.find((other) => hues[other] === hues[row]) === row;
    const taken = new Set(chosen.filter(own).map((row) => hues[row]));
    const free = [0, 1, 2, 3, 4, 5, 6, 7].filter((hue) => !taken.has(hue));
    const hue = own(place) ? hues[place] : free[chosen.filter((row) => !own(row)).indexOf(place)];
    return "var(" + (hue === undefined ? "--figure-grey" : "--hue-" + hue) + ")";
  };

  // `half` is the upper triangle over the rows that have a score in the cell
  for (const cell of cells) {
    let count = 0;
    cell.place = cell.scores.map((score) => (score === null ? -1 : count++));
    cell.count = count;
  }
  const half = (cell, a, b) => {
    const [i, j] = [cell.place[a], cell.place[b]].sort((one, two) => one - two);
    const found = cell.half[i * cell.count - i * (i + 1) / 2 + j - i - 1];
    return found === null ? null : found / 10000;
  };
  const outcome = (difference, width) => (width === null ? "untested" : Math.abs(difference) <= width ? 0 : Math.sign(difference));
  const signs = { 1: "▲", 0: "≈", "-1": "▼", untested: "?" };
  const words = { 1: "better", 0: "tie", "-1": "worse", untested: "not tested" };
  const percent = (number) => (100 * number).toFixed(1);
  const signed = (number) => {
    const text = Math.abs(100 * number).toFixed(1);
    return (text === "0.0" ? "" : number < 0 ? "−" : "+") + text;  // what rounds to zero has no sign
  };

  const head = (key, kind, text) => make("th", { scope: "col", class: kind, "data-kind": kind, "data-key": key },
    make("button", { type: "button" }, text));
  const number = (text, value) => make("td", value === null ? { class: "num" } : { "data-v": value }, text);

  // The difference to the first over distance, or over the parts of a union: a line or dots, and the 95 % interval.
  const drawn = (name, shown, base, others, called) => {
    const distances = shown.every((cell) => cell.frd !== null) && shown.length > 1;
    const points = others.map((other) => shown.filter((cell) => cell.scores[other] !== null).map((cell) => {
      const width_ = half(cell, base, other);
      return { at: shown.indexOf(cell), x: distances ? cell.frd : shown.indexOf(cell),
        y: 100 * (cell.scores[other] - cell.scores[base]), h: 100 * (width_ || 0), known: width_ !== null };
    }));
    const every = points.flat();
    // a band only where every interval is known: between two distances it would otherwise narrow to nothing
    const known = every.every((p) => p.known);
    const banded = distances && known;
    const high = Math.max(0.5, ...every.map((p) => p.y + p.h));
    const low = Math.min(-0.5, ...every.map((p) => p.y - p.h));
    const [near, far] = distances ? [shown[0].frd, shown[shown.length - 1].frd] : [-0.5, shown.length - 0.5];
    const [left, top, width, height] = [46, 34, 640, 220];
    const across = (x) => left + 8 + (width - 16) * (x - near) / (far - near || 1);
    const up = (y) => top + height * (high - y) / (high - low);
    const parts = [];
    const text = (x, y, words_, anchor = "middle") =>
      parts.push(`<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="12" text-anchor="${anchor}" fill="var(--figure-ink)">${words_}</text>`);
    const escaped = (words_) => make("i", {}, words_).innerHTML;
    text(left, 18, escaped(metric) + ", points above or below " + escaped(called(base)), "start");
    const step = [0.5, 1, 2, 5, 10, 20, 50].find((size) => (high - low) / size <= 7) || 100;
    for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) {
      parts.push(`<path d="M${left} ${up(tick).toFixed(1)}h${width}" stroke="var(--figure-${Math.abs(tick) < 1e-9 ? "ink" : "grid"})" stroke-width="0.9"/>`);
      text(left - 6, up(tick) + 4, String(+tick.toFixed(1)).replace("-", "−"), "end");
    }
    let last = -100;
    shown.forEach((cell, i) => {
      const place = across(distances ? cell.frd : i);
      if (place - last < 40) return;
      last = place;
      const words_ = distances ? (cell.frd >= 100 ? cell.frd.toFixed(0) : cell.frd.toFixed(1)) :
        (shown.length > 12 ? cell.split.slice(0, 6) : cell.split.replace(/^.*-/, ""));
      text(place, top + height + 17, escaped(words_));
    });
    if (distances) text(left + width / 2, top + height + 36, "Fréchet distance between training and test images");
    points.forEach((line, i) => {
      const paint = colour(others[i]);
      const shift = distances ? 0 : 9 * (i - (others.length - 1) / 2);
      if (banded) {
        const edge = (sign) => line.map((p) => across(p.x).toFixed(1) + " " + up(p.y + sign * p.h).toFixed(1));
        parts.push(`<path d="M${[...edge(1), ...edge(-1).reverse()].join("L")}Z" fill="${paint}" opacity="0.16" data-band="${i}"/>`);
      } else {
        parts.push(`<path d="${line.filter((p) => p.known).map((p) => "M" + (across(p.x) + shift).toFixed(1) + " " + up(p.y - p.h).toFixed(1) + "V" + up(p.y + p.h).toFixed(1)).join("")}" stroke="${paint}" stroke-width="2" opacity="0.5" data-band="${i}"/>`);
      }
      if (distances) {
        parts.push(`<path d="M${line.map((p) => across(p.x).toFixed(1) + " " + up(p.y).toFixed(1)).join("L")}" fill="none" stroke="${paint}" stroke-width="2.2"/>`);
      }
      for (const p of line) parts.push(`<circle cx="${(across(p.x) + shift).toFixed(1)}" cy="${up(p.y).toFixed(1)}" r="3.6" fill="${paint}"/>`);
    });
    const told = others.map((other) => labels[other]).join(", ") + " against " + labels[base];
    const canvas = make("div", { class: "canvas", role: "region", tabindex: "0", "aria-label": "Difference on " + name });
    canvas.innerHTML = `<svg viewBox="0 0 ${left + width + 12} ${top + height + (distances ? 46 : 26)}" role="img" aria-label="${escaped(told + " on " + name).replace(/"/g, "&quot;")}">${parts.join("")}</svg>`;
    const keys = others.map((other) => make("span", { class: "key" }, make("span", { class: "swatch", style: "--c:" + colour(other) }), called(other)));
    return make("figure", { class: "drawing" }, make("h3", {}, name), canvas, make("figcaption", {}, ...keys,
      banded ? "The band is the 95 % interval of the difference: where it holds zero, the two tie." :
        "Bars are 95 % intervals of the difference: where one holds zero, the two tie." +
        (known ? "" : " Where there is none, it is not known: results of single queries are missing.")));
  };

  const chips = () => {
    choices.replaceChildren(...chosen.map((place, i) => make("li", {}, make("button", { type: "button", class: "choice" + (i ? "" : " first"),
      "data-label": labels[place], "aria-label": "Take " + labels[place] + " away", onclick: () => choose(chosen.filter((other) => other !== place)) },
    make("span", { class: "swatch", style: "--c:" + colour(place) }), labels[place] + " ×"))));
  };

  const draw = () => {
    chips();
    target.replaceChildren();
    figures.replaceChildren();
    if (chosen.length < 2) {
      sum.textContent = "Choose at least two.";
      return;
    }
    const [base, ...rest] = chosen;
    const both = (cell, other) => cell.scores[base] !== null && cell.scores[other] !== null;
    const others = rest.filter((other) => cells.some((cell) => both(cell, other)));
    const apart = rest.filter((other) => !others.includes(other)).map((other) => " " + labels[other] + " and " + labels[base] + " share no split.");
    const shown = cells.filter((cell) => others.some((other) => both(cell, other)));
    if (others.length === 0) {
      sum.textContent = apart.join("").trim();
      return;
    }
    // what all of them have in common, protocol and backbone, is said once
    const tail = (place) => labels[place].split(" · ").slice(1).join(" · ");
    const alike = tail(base) && others.every((other) => tail(other) === tail(base));
    const name = (place) => (alike ? labels[place].split(" · ")[0] : labels[place]);
    const common = alike ? " (" + tail(base) + ")" : "";
    const far = shown.some((cell) => cell.frd !== null);
    const heads = [head("dataset", "text", "Dataset"), head("split", "text", "Split"), ...(far ? [head("frd", "number", "Fréchet distance")] : []),
      head("base", "score", name(base))];
    for (const other of others) heads.push(head("score" + other, "score", name(other)), head("diff" + other, "gain", name(other) + " − " + name(base)));
    const tallies = others.map(() => ({ 1: 0, 0: 0, "-1": 0, untested: 0, total: 0 }));
    const rows = shown.map((cell) => {
      const own = cell.scores[base];
      const line = [make("td", {}, cell.dataset), make("td", {}, cell.split + (cell.default ? " (default)" : "")),
        ...(far ? [number(cell.frd === null ? "–" : cell.frd.toFixed(1), cell.frd)] : []), number(percent(own), own)];
      others.forEach((other, i) => {
        const score = cell.scores[other];
        line.push(number(score === null ? "–" : percent(score), score));
        if (score === null) {
          line.push(number("–", null));
          return;
        }
        const difference = score - own;
        const width = half(cell, base, other);
        const result = outcome(difference, width);
        if (!cell.part) {
          tallies[i][result] += 1;
          tallies[i].total += difference;
        }
        const told = number(signed(difference) + (width === null ? "" : " ± " + percent(width)) + " ", difference);
        told.append(make("span", { class: "sign", title: words[result] }, signs[result]));
        line.push(told);
      });
      return make("tr", {}, ...line);
    });
    const board = make("div", { class: "board", "data-board": "compare-chosen" },
      make("div", { class: "tools", hidden: true }),
      make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Differences on each split" },
        make("table", { id: "table-compare-chosen" }, make("caption", {}, metric + " on each split, and differences to " + name(base) + common),
          make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows))),
      make("p", { class: "note" }, metric + " in percent, differences to " + name(base) + common + " in points, ± half the 95 % interval. ▲ better, ▼ worse, ≈ a tie, within the interval" + (tallies.some((t) => t.untested) ? ", ? not tested." : ".")));
    target.append(board);
    oodml.board(board);
    const datasets = [...new Set(shown.map((cell) => cell.dataset))].map((name) => [name, shown.filter((cell) => cell.dataset === name)]);
    figures.append(...datasets.filter(([, some]) => some.length > 1).map(([dataset, some]) =>
      drawn(dataset, some, base, others.filter((other) => some.some((cell) => cell.scores[other] !== null)), name)));
    const networks = new Set([base, ...others].map((place) => backbones[place]));
    sum.textContent = others.map((other, i) => {
      const t = tallies[i];
      const count = t[1] + t[0] + t[-1] + t.untested;
      const counted = (number_, one, many) => number_ + " " + (number_ === 1 ? one : many);
      return name(other) + " against " + name(base) + (i ? "" : common) + ": " + counted(t[1], "win", "wins") + ", " + counted(t[0], "tie", "ties") + ", " +
        counted(t[-1], "loss", "losses") + (t.untested ? ", " + t.untested + " not tested" : "") + (count ? ", mean difference " + signed(t.total / count) + " points." : ".");
    }).join(" ") + apart.join("") + (networks.size > 1 ? " They have different backbones, which no board ranks together." : "");
  };

  const choose = (places) => {
    chosen = places;
    remember("pin", chosen.map((place) => ids[place]).join("|"));
    draw();
  };
  const read = () => {
    const named = listed("pin").flatMap((part) => part.split(","));
    chosen = [...new Set(named.map((id) => Math.max(ids.indexOf(id), labels.indexOf(id))))].filter((place) => place >= 0);
    if (named.length === 0) chosen = [0, 1];
    draw();
  };
  const add = () => {
    const place = labels.indexOf(search.value.trim());
    if (place < 0) return;
    search.value = "";
    if (!chosen.includes(place)) choose([...chosen, place]);
    announce(labels[place] + " added");
  };
  search.addEventListener("input", (event) => { if (!event.inputType || event.inputType === "insertReplacementText") add(); });
  search.addEventListener("change", add);
  section.hidden = false;
  read();
  oodml.listen(read);
});
