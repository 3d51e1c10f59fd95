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

  const anchored = location.hash && !location.hash.includes("=");
  const state = new URLSearchParams(anchored ? "" : location.hash.slice(1));
  const remember = (key, value) => {
    if (value) state.set(key, value); else state.delete(key);
    const text = state.toString();
    history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  };
  const listed = (key) => (state.get(key) || "").split("|").filter(Boolean);

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
          button.setAttribute("aria-pressed", String(button.textContent === there)));
      }
    };
    for (const group of groups) {
      const parts = all(":scope > .tab", group);
      if (parts.length < 2) continue;
      const press = (tab) => () => {
        choose(tab.dataset.tab);
        remember("metric", tab === parts[0] ? "" : tab.dataset.tab);
        announce("Metric " + tab.dataset.tab);
      };
      group.prepend(make("div", { class: "tabs", role: "group", "aria-label": "Metric" },
        ...parts.map((tab) => make("button", { type: "button", onclick: press(tab) }, tab.dataset.tab))));
    }
    choose(state.get("metric"));
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

  document.addEventListener("DOMContentLoaded", () => { theme(); tabs(); copyables(); });
  return { all, make, announce, state, remember, listed, copy, confirmOn, download };
})();
