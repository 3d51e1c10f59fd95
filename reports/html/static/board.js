"use strict";
// A table that can be sorted, filtered by text and facets, pinned, narrowed to some columns or datasets, and taken along.
oodml.board = (board) => {
  const { all, make, announce, state, remember, listed, listen, changed, pin, copy, confirmOn, download } = oodml;
  const table = board.querySelector("table");
  const name = board.dataset.board;
  const heads = all("thead th", table);
  const rows = all("tbody tr:not(.group)", table);
  const started = [...rows];
  const key = (what) => what + "." + name;
  const title = (row) => (row.querySelector("th[scope=row]") || row.cells[0]).textContent.trim().replace(/\s+/g, " ");
  const identity = (row) => row.dataset.method || title(row);
  const bodies = [...table.tBodies];
  const home = new Map(rows.map((row) => [row, row.parentNode]));
  const facets = [["backbone", "Backbone"], ["family", "Family"], ["training", "Training"], ["level", "Level"]].map(([kind, text]) =>
    [kind, text, [...new Set(rows.map((row) => row.dataset[kind]).filter(Boolean))].sort()]).filter(([, , values]) => values.length > 1);
  const together = () => bodies.length > 1 && Boolean(state.get(key("together")));
  const place = (role) => heads.findIndex((head) => head.dataset.role === role);
  const parts = heads.map((head, i) => i).filter((i) => heads[i].dataset.role === "part");
  const whole = ["mean", "harmonic"].map(place).find((i) => i >= 0);
  const before = new Map();

  const value = (row, index) => {
    const cell = row.cells[index];
    if (heads[index].dataset.kind === "text") return cell.textContent.trim().toLowerCase() || null;
    return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  };
  const direction = (asked) => (asked.startsWith("-") ? "descending" : "ascending");

  const sort = () => {
    const asked = state.get(key("sort"));
    const index = asked ? heads.findIndex((head) => head.dataset.key === asked.replace(/^-/, "")) : -1;
    const pins = new Set(listed("pin"));
    const custom = listed(key("without")).length > 0;
    let ordered = started;
    let groups = bodies;
    if (index >= 0 || custom || together()) {
      const by = index >= 0 ? index : custom ? whole : ranking;
      const sign = index >= 0 && direction(asked) === "ascending" ? 1 : -1;
      const text = heads[by].dataset.kind === "text";
      ordered = started.map((row) => [value(row, by), row]).sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (text ? a.localeCompare(b, "en", { numeric: true }) : a - b);
      }).map(([, row]) => row);
    }
    const first = (body) => ordered.findIndex((row) => home.get(row) === body);
    if (index >= 0) groups = [...bodies].sort((a, b) => first(a) - first(b));
    ordered = [...ordered.filter((row) => pins.has(identity(row))), ...ordered.filter((row) => !pins.has(identity(row)))];
    if (together()) bodies[0].append(...ordered);
    else for (const body of groups) body.append(...ordered.filter((row) => home.get(row) === body));
    table.append(...(together() ? bodies : groups));
    const shown = index >= 0 ? index : heads.findIndex((head) => head.dataset.key === "rank");
    heads.forEach((head, i) => {
      if (i === shown) head.setAttribute("aria-sort", asked ? direction(asked) : "ascending");
      else head.removeAttribute("aria-sort");
    });
    for (const row of rows) {
      row.classList.toggle("pinned", pins.has(identity(row)));
      for (const pin of all(".pin", row)) pin.setAttribute("aria-pressed", String(pins.has(identity(row))));
    }
  };

  // any of the values chosen in one facet, and in every facet where some are
  const fits = (row) => facets.every(([kind]) => {
    const asked = listed(key("only")).filter((one) => one.startsWith(kind + ":"));
    return asked.length === 0 || asked.includes(kind + ":" + row.dataset[kind]);
  });
  const filter = () => {
    const words = (state.get(key("filter")) || "").toLowerCase().split(/\s+/).filter(Boolean);
    const pins = new Set(listed("pin"));
    let shown = 0;
    for (const row of rows) {
      row.hidden = !(fits(row) && words.every((word) => row.textContent.toLowerCase().includes(word))) && !pins.has(identity(row));
      shown += !row.hidden;
    }
    for (const group of all("tbody tr.group", table)) {
      group.hidden = together() || rows.every((row) => row.hidden || home.get(row) !== group.parentNode);
    }
    return shown;
  };

  const spare = () => heads.filter((head) => head.dataset.spare !== undefined && !(together() && head.dataset.key === "backbone"))
    .map((head) => head.dataset.key);
  const hiding = () => (state.has(key("hide")) ? listed(key("hide")) : spare());

  const columns = () => {
    const hidden = new Set(hiding());
    const without = new Set(listed(key("without")));
    heads.forEach((head, i) => {
      const off = hidden.has(head.dataset.key) || without.has(head.dataset.key) ||
        (without.size > 0 && head.dataset.role === "whole") || (together() && head.dataset.key === "rank");
      head.hidden = off;
      for (const row of rows) row.cells[i].hidden = off;
    });
  };

  const means = {
    mean: (values) => values.reduce((a, b) => a + b, 0) / values.length,
    arithmetic: (values) => values.reduce((a, b) => a + b, 0) / values.length,
    harmonic: (values) => (Math.min(...values) === 0 ? 0 : values.length / values.reduce((a, b) => a + 1 / b, 0)),
  };
  const put = (cell, number, text) => {
    if (!before.has(cell)) before.set(cell, [cell.innerHTML, cell.dataset.v, cell.className, cell.title]);
    cell.textContent = text;
    cell.classList.remove("best", "second");
    if (cell.dataset.v !== undefined) cell.classList.add("num");
    cell.removeAttribute("title");
    if (number === null) delete cell.dataset.v; else cell.dataset.v = String(number);
  };
  const restore = () => {
    for (const [cell, [html, number, classes, told]] of before) {
      cell.innerHTML = html;
      cell.className = classes;
      if (told) cell.title = told;
      if (number === undefined) delete cell.dataset.v; else cell.dataset.v = number;
    }
    before.clear();
    const note = board.querySelector(".custom");
    if (note) note.remove();
  };
  const tell = (text) => board.querySelector(".scroll").before(make("p", { class: "custom note" }, text));
  const ranking = heads.findIndex((head) => head.dataset.kind === "score");
  const rankAmong = (some, by) => {
    const rank = heads.findIndex((head) => head.dataset.key === "rank");
    const counts = some.filter((row) => rank >= 0 && row.cells[rank].dataset.v !== undefined);
    const own = new Map(counts.map((row) => [row, value(row, by)]));
    for (const row of counts) {
      const better = counts.filter((other) => home.get(other) === home.get(row) && own.get(other) > own.get(row)).length;
      put(row.cells[rank], own.get(row) === null ? null : better + 1, own.get(row) === null ? "–" : String(better + 1));
    }
  };
  const aggregate = () => {
    const without = new Set(listed(key("without")));
    const kept = parts.filter((i) => !without.has(heads[i].dataset.key));
    const custom = without.size > 0 && kept.length > 0;
    const narrowed = listed(key("only")).length > 0 && ranking >= 0;
    if (!custom && narrowed) {
      rankAmong(rows.filter(fits), ranking);
      tell("Ranks are among the rows of this choice, by the number, without tests.");
    }
    if (together()) tell("All backbones in one list, without ranks: what is pretrained differently is no fair comparison.");
    if (!custom) return;
    for (const row of rows) {
      const there = kept.map((i) => value(row, i)).filter((number) => number !== null);
      const complete = there.length === kept.length;
      for (const [role, mean] of Object.entries(means)) {
        if (place(role) < 0) continue;
        const [number, cell] = [complete ? mean(there) : null, row.cells[place(role)]];
        put(cell, number, complete ? (100 * number).toFixed(1) : "");
        if (!complete) cell.append(make("span", { class: "covered" }, there.length + " of " + kept.length));
      }
      if (place("weakest") >= 0) {
        const least = kept.reduce((a, b) => (value(row, b) < value(row, a) ? b : a));
        put(row.cells[place("weakest")], null, complete ? heads[least].dataset.key.replace(/^recall:/, "") : "");
      }
    }
    rankAmong(rows.filter(fits), whole);
    tell("Custom: over " + kept.map((i) => heads[i].textContent.trim()).join(", ") + " alone. Ranks are by the number, without tests.");
  };

  const apply = () => {
    restore();
    aggregate();
    columns();
    const shown = filter();
    sort();
    table.classList.toggle("together", together());
    return shown;
  };
  const change = (what, text, told, step = true) => {
    remember(key(what), text, step);
    const shown = apply();
    announce(told || shown + " rows shown");
  };
  const toggled = (what, item, on) => {
    const items = (what === "hide" ? hiding() : listed(key(what))).filter((other) => other !== item);
    return [...items, ...(on ? [item] : [])].join("|") || (what === "hide" ? "none" : "");
  };

  const cellText = (cell) => cell.textContent.trim().replace(/\s+/g, " ");
  const escapeTex = (text) => text.replace(/[\\&%$#_{}~^]/g, (found) =>
    ({ "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" })[found] || "\\" + found)
    .replace(/±/g, "$\\pm$").replace(/·/g, "$\\cdot$").replace(/–/g, "--").replace(/−/g, "$-$")
    .replace(/^[[*]/, "{$&}"); // the end of the row before takes a bracket or a star for its own
  const mark = (cell, text, format) => {
    if (together()) return text;
    const best = cell.classList.contains("best");
    const second = cell.classList.contains("second");
    if (format === "latex") return best ? "\\textbf{" + text + "}" : second ? "\\underline{" + text + "}" : text;
    return format === "md" && best ? "**" + text + "**" : text;
  };
  const asText = (format) => {
    const keep = heads.map((head, i) => i).filter((i) => !heads[i].hidden && heads[i].dataset.kind !== "html");
    const lines = all("tbody tr", table).filter((row) => !row.hidden);
    if (format === "csv") {
      const quote = (cell) => (/[",\n]/.test(cell) ? '"' + cell.replace(/"/g, '""') + '"' : cell);
      const cell = (row, i) => (heads[i].dataset.kind === "text" ? cellText(row.cells[i]) : row.cells[i].dataset.v || "");
      return [keep.map((i) => heads[i].dataset.key), ...lines.filter((row) => !row.classList.contains("group")).map((row) => keep.map((i) => cell(row, i)))]
        .map((row) => row.map(quote).join(",")).join("\n") + "\n";
    }
    const write = { latex: escapeTex, md: (text) => text.replace(/\|/g, "\\|") }[format];
    const head = keep.map((i) => write(cellText(heads[i])));
    const grid = lines.map((row) => row.classList.contains("group") ? cellText(row.cells[0]) :
      keep.map((i) => mark(row.cells[i], write(cellText(row.cells[i])), format)));
    const left = (i) => heads[i].dataset.kind === "text";
    if (format === "md") {
      const body = grid.filter(Array.isArray);
      return [head, keep.map((i) => (left(i) ? "---" : "--:")), ...body].map((row) => "| " + row.join(" | ") + " |").join("\n") + "\n";
    }
    const body = grid.map((row) => Array.isArray(row) ? row.join(" & ") + " \\\\" :
      "\\multicolumn{" + keep.length + "}{l}{\\emph{" + escapeTex(row) + "}} \\\\");
    return ["% needs \\usepackage{booktabs}", "\\begin{tabular}{" + keep.map((i) => (left(i) ? "l" : "r")).join("") + "}",
      "\\toprule", head.join(" & ") + " \\\\", "\\midrule", ...body, "\\bottomrule", "\\end{tabular}"].join("\n") + "\n";
  };

  const chooser = (label, what, items) => {
    const off = new Set(what === "hide" ? hiding() : listed(key(what)));
    const boxes = items.map(([item, text]) => {
      const box = make("input", { type: "checkbox", value: item });
      box.checked = !off.has(item);
      box.addEventListener("change", () => {
        if (what === "without" && all("input:checked", box.closest(".menu")).length === 0) {
          box.checked = true;
          announce("One must stay");
          return;
        }
        change(what, toggled(what, item, !box.checked), text + (box.checked ? " shown" : " taken away"));
      });
      return make("label", {}, box, " " + text);
    });
    return make("details", { class: "menu", "data-menu": what }, make("summary", {}, label), make("div", {}, ...boxes));
  };

  const facet = ([kind, text, values]) => {
    const chosen = () => listed(key("only")).filter((one) => one.startsWith(kind + ":"));
    const summary = make("summary", {});
    const told = () => { summary.textContent = text + (chosen().length ? " (" + chosen().length + ")" : ""); };
    const boxes = values.map((item) => {
      const box = make("input", { type: "checkbox", value: item });
      box.checked = chosen().includes(kind + ":" + item);
      box.addEventListener("change", () => {
        change("only", toggled("only", kind + ":" + item, box.checked));
        told();
      });
      return make("label", {}, box, " " + item);
    });
    told();
    return make("details", { class: "menu", "data-menu": kind }, summary, make("div", {}, ...boxes));
  };

  const build = () => {
    const tools = board.querySelector(".tools");
    tools.replaceChildren();
    if (rows.length < 2) return;
    const caption = table.caption.textContent;
    const input = make("input", { type: "search", placeholder: "Filter rows", "data-filter": true,
      "aria-label": "Filter the rows of " + caption });
    input.value = state.get(key("filter")) || "";
    input.addEventListener("input", () => change("filter", input.value.trim(), "", false));
    const chips = facets.map(facet);
    if (bodies.length > 1 && ranking >= 0) {
      chips.push(make("button", { type: "button", class: "tag", "data-together": true, "aria-pressed": String(together()),
        title: "All backbones in one list, without ranks", onclick: (event) => {
          event.target.setAttribute("aria-pressed", String(!together()));
          change("together", together() ? "" : "1");
        } }, "All backbones"));
    }
    const text = (i) => heads[i].textContent.trim();
    const hideable = heads.map((head, i) => i).filter((i) => !["rank", "method"].includes(heads[i].dataset.key));
    const menus = [chooser("Columns", "hide", hideable.map((i) => [heads[i].dataset.key, text(i)]))];
    if (parts.length > 1 && whole !== undefined) {
      menus.push(chooser("Datasets", "without", parts.map((i) => [heads[i].dataset.key, text(i)])));
    }
    const format = make("select", { "aria-label": "Format", "data-format": true },
      ...[["csv", "CSV"], ["md", "Markdown"], ["latex", "LaTeX"]].map(([id, head]) => make("option", { value: id }, head)));
    const endings = { csv: ".csv", md: ".md", latex: ".tex" };
    tools.append(make("span", { class: "narrow" }, input, ...chips),
      make("span", { class: "take" }, ...menus, format,
        make("button", { type: "button", "data-copy": true, onclick: async (event) => {
          await copy(asText(format.value));
          confirmOn(event.target, "Copied what is shown");
        } }, "Copy"),
        make("button", { type: "button", "data-download": true, onclick: () => (format.value === "csv" ?
          board.querySelector("[data-file]").click() : download(name + endings[format.value], asText(format.value))) }, "Download"),
        make("button", { type: "button", "data-reset": true, onclick: () => {
          for (const what of ["sort", "filter", "only", "hide", "without", "together"]) remember(key(what), "");
          remember("pin", "");
          changed();
          announce("Back to the start");
        } }, "Reset")));
    tools.hidden = false;
  };

  heads.forEach((head) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.disabled = false;
    button.addEventListener("click", () => {
      const first = ["text", "rank"].includes(head.dataset.kind) ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      const to = head.getAttribute("aria-sort") === first ? other : first;
      change("sort", (to === "descending" ? "-" : "") + head.dataset.key, "Sorted by " + button.textContent + ", " + to);
    });
  });
  for (const row of rows) {
    const head = row.querySelector("th[scope=row]");
    if (!head || !head.querySelector("a") || rows.length < 4) continue;
    head.append(make("button", { type: "button", class: "pin", "aria-label": "Pin " + title(row), onclick: () =>
      pin(identity(row)) }));
  }
  const scroll = board.querySelector(".scroll");
  new ResizeObserver(() => scroll.classList.toggle("fits", table.scrollWidth <= scroll.clientWidth)).observe(scroll);
  const again = () => {
    build();
    apply();
  };
  listen(again);
  again();
};
document.addEventListener("DOMContentLoaded", () => oodml.all("[data-board]").forEach(oodml.board));
