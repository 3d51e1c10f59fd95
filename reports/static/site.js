"use strict";
// Sorting, filtering, copying and the choice of a metric. Pages read without it; state lies in the URL's hash.
(() => {
  const root = document.documentElement;
  const announce = (text) => { document.getElementById("announce").textContent = text; };
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  root.classList.add("js");

  const state = new URLSearchParams(location.hash.slice(1));
  const remember = (key, value) => {
    if (value) state.set(key, value); else state.delete(key);
    const text = state.toString();
    history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  };
  const anchored = location.hash && !location.hash.includes("=");

  const toggle = document.querySelector("[data-theme-toggle]");
  const store = (value) => { try { if (value) localStorage.setItem("oodml-theme", value); return localStorage.getItem("oodml-theme"); } catch { return null; } };
  const saved = store();
  if (saved) root.dataset.theme = saved;
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store(root.dataset.theme);
    announce(dark ? "Light colours" : "Dark colours");
  });

  const value = (row, index, kind) => {
    const cell = row.cells[index];
    if (kind === "text") return cell.textContent.trim().toLowerCase() || null;
    return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  };

  const order = (table, index, direction) => {
    const heads = all("thead th", table);
    const kind = heads[index].dataset.kind;
    const sign = direction === "ascending" ? 1 : -1;
    const rows = all("tbody tr", table).map((row) => [value(row, index, kind), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (kind === "text" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
    heads.forEach((head, i) => i === index ? head.setAttribute("aria-sort", direction) : head.removeAttribute("aria-sort"));
  };

  const filter = (board, text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of all("tbody tr", board)) {
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      shown += !row.hidden;
    }
    return shown;
  };

  const escapeTex = (text) => text.replace(/[&%$#_{}]/g, "\\$&").replace(/±/g, "$\\pm$").replace(/–/g, "--");
  const asText = (table, format) => {
    const heads = all("thead th", table);
    const keep = heads.map((head, i) => i).filter((i) => heads[i].dataset.kind !== "html");
    const rows = [table.tHead.rows[0], ...all("tbody tr", table).filter((row) => !row.hidden)];
    const grid = rows.map((row) => keep.map((i) => row.cells[i].textContent.trim().replace(/\s+/g, " ")));
    if (format === "md") {
      const rule = keep.map((i) => heads[i].dataset.kind === "text" ? "---" : "--:");
      return [grid[0], rule, ...grid.slice(1)].map((cells) => "| " + cells.join(" | ") + " |").join("\n") + "\n";
    }
    if (format === "latex") {
      const lines = grid.map((cells) => cells.map(escapeTex).join(" & ") + " \\\\");
      const columns = keep.map((i) => heads[i].dataset.kind === "text" ? "l" : "r").join("");
      return ["\\begin{tabular}{" + columns + "}", "\\toprule", lines[0], "\\midrule", ...lines.slice(1), "\\bottomrule", "\\end{tabular}"].join("\n") + "\n";
    }
    const quote = (cell) => /[",\n]/.test(cell) ? '"' + cell.replace(/"/g, '""') + '"' : cell;
    return grid.map((cells) => cells.map(quote).join(",")).join("\n") + "\n";
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  const confirmOn = (button, text) => {
    const before = button.textContent;
    button.textContent = "Copied";
    announce(text);
    setTimeout(() => { button.textContent = before; }, 1200);
  };

  for (const board of all("[data-board]")) {
    const table = board.querySelector("table");
    const name = board.dataset.board;
    const heads = all("thead th", table);
    const tools = board.querySelector(".tools");
    tools.hidden = table.tBodies[0].rows.length < 2;
    heads.forEach((head, index) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.disabled = false;
      button.addEventListener("click", () => {
        const first = ["text", "rank"].includes(head.dataset.kind) ? "ascending" : "descending";
        const other = first === "ascending" ? "descending" : "ascending";
        const direction = head.getAttribute("aria-sort") === first ? other : first;
        order(table, index, direction);
        remember("sort." + name, (direction === "descending" ? "-" : "") + head.dataset.key);
        announce("Sorted by " + button.textContent + ", " + direction);
      });
    });
    const asked = state.get("sort." + name);
    if (asked) {
      const index = heads.findIndex((head) => head.dataset.key === asked.replace(/^-/, ""));
      if (index >= 0) order(table, index, asked.startsWith("-") ? "descending" : "ascending");
    }
    const input = board.querySelector("[data-filter]");
    input.value = state.get("filter." + name) || "";
    if (input.value) filter(board, input.value);
    input.addEventListener("input", () => {
      const shown = filter(board, input.value);
      remember("filter." + name, input.value.trim());
      announce(shown + " rows shown");
    });
    for (const button of all("[data-copy]", board)) {
      button.addEventListener("click", async () => {
        await copy(asText(table, button.dataset.copy));
        confirmOn(button, "Copied the table");
      });
    }
  }

  const groups = all("[data-tabs]");
  const choose = (metric) => {
    for (const group of groups) {
      const tabs = all(":scope > .tab", group);
      const there = tabs.some((tab) => tab.dataset.tab === metric) ? metric : tabs[0] && tabs[0].dataset.tab;
      tabs.forEach((tab) => { tab.hidden = tab.dataset.tab !== there; });
      all(":scope > .tabs button", group).forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === there)));
    }
  };
  for (const group of groups) {
    const tabs = all(":scope > .tab", group);
    if (tabs.length < 2) continue;
    const bar = document.createElement("div");
    bar.className = "tabs";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Metric");
    for (const tab of tabs) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = tab.dataset.tab;
      button.addEventListener("click", () => {
        choose(tab.dataset.tab);
        remember("metric", tab === tabs[0] ? "" : tab.dataset.tab);
        announce("Metric " + tab.dataset.tab);
      });
      bar.append(button);
    }
    group.prepend(bar);
  }
  choose(anchored ? undefined : state.get("metric"));

  for (const block of all("pre[data-copyable]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await copy(block.querySelector("code").textContent);
      confirmOn(button, "Copied");
    });
    block.append(button);
  }
})();
