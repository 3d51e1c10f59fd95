"use strict";
// Two methods or more side by side: paired differences on every split, with the intervals that the page carries.
document.addEventListener("DOMContentLoaded", () => {
  const { all, make, remember, listed } = oodml;
  const section = document.querySelector("[data-compare]");
  const { labels, hues, cells, metric } = JSON.parse(document.getElementById("compare-data").textContent);
  const target = section.querySelector("[data-compare-board]");
  const sum = section.querySelector("[data-compare-sum]");
  let chosen = listed("m").filter((label) => labels.includes(label));
  if (chosen.length === 0) chosen = labels.slice(0, 2);

  const half = (cell, a, b) => {
    const [i, j] = a < b ? [a, b] : [b, a];
    const found = cell.half[i * labels.length - i * (i + 1) / 2 + j - i - 1];
    return found === null ? null : found / 10000;
  };
  const outcome = (difference, width) => (width !== null && Math.abs(difference) <= width ? 0 : Math.sign(difference));
  const signs = { 1: "▲", 0: "≈", "-1": "▼" };
  const words = { 1: "better", 0: "tie", "-1": "worse" };
  const percent = (number) => (100 * number).toFixed(1);
  const signed = (number) => (number < 0 ? "−" : "+") + Math.abs(100 * number).toFixed(1);

  const head = (key, kind, text) => make("th", { scope: "col", class: kind, "data-kind": kind, "data-key": key },
    make("button", { type: "button" }, text));
  const number = (text, value) => make("td", value === null ? { class: "num" } : { class: "num", "data-v": value }, text);

  const draw = () => {
    all("button", section.querySelector("[data-compare-choices]")).forEach((button) => {
      const at = chosen.indexOf(button.dataset.label);
      button.setAttribute("aria-pressed", String(at >= 0));
      button.classList.toggle("first", at === 0);
    });
    target.replaceChildren();
    if (chosen.length < 2) {
      sum.textContent = "Choose at least two.";
      return;
    }
    const places = chosen.map((label) => labels.indexOf(label));
    const [base, ...others] = places;
    const heads = [head("dataset", "text", "Dataset"), head("split", "text", "Split"), head("frd", "number", "Distance"),
      head("base", "score", labels[base])];
    for (const other of others) heads.push(head("score" + other, "score", labels[other]), head("diff" + other, "gain", "Difference"));
    const tallies = others.map(() => ({ 1: 0, 0: 0, "-1": 0, total: 0 }));
    const rows = cells.map((cell) => {
      const own = cell.scores[base];
      const line = [make("td", {}, cell.dataset), make("td", {}, cell.split + (cell.default ? " (default)" : "")),
        number(cell.frd === null ? "–" : cell.frd.toFixed(1), cell.frd), number(own === null ? "–" : percent(own), own)];
      others.forEach((other, i) => {
        const score = cell.scores[other];
        line.push(number(score === null ? "–" : percent(score), score));
        if (own === null || score === null) {
          line.push(number("–", null));
          return;
        }
        const difference = score - own;
        const width = half(cell, base, other);
        const result = outcome(difference, width);
        tallies[i][result] += 1;
        tallies[i].total += difference;
        const text = signed(difference) + (width === null ? "" : " ± " + percent(width)) + " ";
        const shown = number(text, difference);
        shown.append(make("span", { class: "sign", title: words[result] }, signs[result]));
        line.push(shown);
      });
      return make("tr", {}, ...line);
    });
    const board = make("div", { class: "board", "data-board": "compare-chosen" },
      make("div", { class: "tools", hidden: true }),
      make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Differences on each split" },
        make("table", { id: "table-compare-chosen" }, make("caption", {}, metric + " on each split, and differences to " + labels[base]),
          make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows))),
      make("p", { class: "note" }, "Difference to " + labels[base] + " in points, ± half its 95 % interval. ▲ better, ▼ worse, ≈ a tie."));
    target.append(board);
    oodml.board(board);
    sum.textContent = others.map((other, i) => {
      const t = tallies[i];
      const count = t[1] + t[0] + t[-1];
      return labels[other] + " against " + labels[base] + ": " + t[1] + " wins, " + t[0] + " ties, " + t[-1] + " losses" +
        (count ? ", mean difference " + signed(t.total / count) + " points" : "") + ".";
    }).join(" ");
  };

  section.querySelector("[data-compare-choices]").append(...labels.map((label, i) => make("button", {
    type: "button", class: "choice", "data-label": label, "aria-pressed": "false", onclick: () => {
      chosen = chosen.includes(label) ? chosen.filter((other) => other !== label) : [...chosen, label];
      remember("m", chosen.join("|"));
      draw();
    } }, make("span", { class: "swatch", style: "--c:var(" + (hues[i] >= 0 ? "--hue-" + hues[i] : "--figure-grey") + ")" }), label)));
  section.hidden = false;
  draw();
});
