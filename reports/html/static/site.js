"use strict";
// What all pages share: state in the URL's hash, light and dark, the choice of a metric, copying. Pages read without it.
const oodml = (() => {
  const root = document.documentElement;
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const announce = (text) => { document.getElementById("announce").textContent = text; };
  root.classList.add("js");

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  };

  const state = new URLSearchParams();
  const listeners = [];
  const listen = (apply) => listeners.push(apply);
  const changed = () => listeners.forEach((apply) => apply());
  const read = () => {
    if (location.hash && !location.hash.includes("=")) return; // a place on the page
    for (const key of [...state.keys()]) state.delete(key);
    if (location.hash.includes("=")) new URLSearchParams(location.hash.slice(1)).forEach((value, key) => state.set(key, value));
  };
  read();
  // a step can be undone by the back button; what is typed letter by letter is none
  const remember = (key, value, step = true) => {
    if (value) state.set(key, value); else state.delete(key);
    const text = state.toString();
    const to = text ? "#" + text : location.pathname + location.search;
    if ((text ? "#" + text : "") === location.hash) return;
    history[step ? "pushState" : "replaceState"](null, "", to);
  };
  const listed = (key) => (state.get(key) || "").split("|").filter(Boolean);

  const pin = (method) => {
    const rest = listed("pin").filter((other) => other !== method);
    const on = rest.length === listed("pin").length;
    remember("pin", [...rest, ...(on ? [method] : [])].join("|"));
    changed();
    announce(method + (on ? " pinned" : " unpinned"));
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea");
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
  const download = (name, text) => {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    announce("Saved " + name);
  };

  const theme = () => {
    const toggle = document.querySelector("[data-theme-toggle]");
    const store = (value) => {
      try {
        if (value) localStorage.setItem("oodml-theme", value);
        return localStorage.getItem("oodml-theme");
      } catch {
        return null;
      }
    };
    const saved = store();
    if (saved) root.dataset.theme = saved;
    toggle.hidden = false;
    toggle.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      store(root.dataset.theme);
      announce(dark ? "Light colours" : "Dark colours");
    });
  };

  const tabs = () => {
    const groups = all("[data-tabs]");
    const choose = (metric) => {
      for (const group of groups) {
        const parts = all(":scope > .tab", group);
        const there = parts.some((tab) => tab.dataset.tab === metric) ? metric : parts[0] && parts[0].dataset.tab;
        parts.forEach((tab) => { tab.hidden = tab.dataset.tab !== there; });
        all(":scope > .tabs button", group).forEach((button) =>
          button.setAttribute("aria-pressed", String(button.dataset.tab === there)));
      }
    };
    for (const group of groups) {
      const parts = all(":scope > .tab", group);
      if (parts.length < 2 || group.dataset.follow !== undefined) continue;
      const press = (tab) => () => {
        choose(tab.dataset.tab);
        remember("metric", tab === parts[0] ? "" : tab.dataset.tab);
        announce("Metric " + tab.dataset.name);
      };
      group.prepend(make("div", { class: "tabs", role: "group", "aria-label": "Metric" },
        ...parts.map((tab) => make("button", { type: "button", "data-tab": tab.dataset.tab, onclick: press(tab) }, tab.dataset.name))));
    }
    choose(state.get("metric"));
    listen(() => choose(state.get("metric")));
    const follow = (event) => {
      const link = event.target.closest && event.target.closest("a[href]");
      if (!link || !/\.html$/.test(link.href.split("#")[0]) || (link.hash && !link.dataset.carries)) return;
      // the metric goes along everywhere, what is pinned to the page that compares
      const keys = ["metric", ...(link.pathname.endsWith("/compare.html") ? ["pin"] : [])].filter((key) => state.get(key));
      link.hash = new URLSearchParams(keys.map((key) => [key, state.get(key)])).toString();
      link.dataset.carries = "yes";
    };
    for (const kind of ["click", "auxclick"]) document.addEventListener(kind, follow, true);
  };

  const menus = () => {
    const close = (except) => all("details.menu[open]").forEach((menu) => { if (menu !== except) menu.open = false; });
    document.addEventListener("pointerdown", (event) => close(event.target.closest(".menu")));
    document.addEventListener("focusin", (event) => close(event.target.closest(".menu")));
    document.addEventListener("keydown", (event) => {
      const open = event.key === "Escape" && document.querySelector("details.menu[open]");
      if (!open) return;
      close();
      open.querySelector("summary").focus();
    });
  };

  const copyables = () => {
    for (const block of all("pre[data-copyable]")) {
      const press = async (event) => {
        await copy(block.querySelector("code").textContent);
        confirmOn(event.target, "Copied");
      };
      block.append(make("button", { type: "button", onclick: press }, "Copy"));
    }
  };

  document.addEventListener("DOMContentLoaded", () => { theme(); tabs(); copyables(); menus(); });
  window.addEventListener("hashchange", () => { read(); changed(); });
  return { all, make, announce, state, remember, listed, listen, changed, pin, copy, confirmOn, download };
})();
