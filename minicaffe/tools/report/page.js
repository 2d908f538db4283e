"use strict";
/* What the other scripts stand on: the data, making elements, writing numbers, settings, following a run.

   A section's script registers itself: report.sections[id] = (host, data) => { ... }. Text only ever becomes
   text: names of layers and classes are their users'. */
const report = {
  data: JSON.parse(document.getElementById("data").textContent),
  settings: { x: "iteration", log: true, smooth: 0.15, theme: "auto" },
  sections: {}, // what draws the section of an id
  busy: [], // while one of these gives true, a page that follows its run does not reload
  place: "minicaffe:" + location.pathname,
};

/* An element; attributes that are functions listen, children that are strings are text. */
report.make = (tag, attributes = {}, ...children) => {
  const drawn = ["svg", "g", "path", "line", "rect", "circle", "text"].includes(tag);
  const made = drawn
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
};

/* 0.98713 -> 0.9871, 1234567 -> 1.235e6, 1200 -> 1,200 */
report.number = (value, digits = 4) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e7)) {
    return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const shown = Number(value.toPrecision(digits));
  return shown.toLocaleString("en", { maximumFractionDigits: 8 });
};
/* 18432000 -> 18.4 M */
report.count = (value) => {
  const [unit, name] = [[1e12, "T"], [1e9, "G"], [1e6, "M"]].find(([size]) => value >= size) || [1, ""];
  return unit === 1 ? report.number(value) : `${report.number(value / unit, 3)} ${name}`;
};
report.score = (value) => {
  const short = typeof value === "number" && Math.abs(value) < 10 && Math.abs(value) >= 1e-3;
  return short ? value.toFixed(4) : report.number(value);
};
report.mib = (bytes) => (!bytes ? "" : bytes < 2 ** 20 / 200 ? "<0.01" : report.number(bytes / 2 ** 20, 3));

report.clock = (seconds) => {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.round(seconds);
  if (whole < 60) return report.number(seconds, 3) + " s";
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (n) => String(n).padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(s)} h` : `${m}:${two(s)} min`;
};

report.last = (values) => {
  for (let i = (values || []).length - 1; i >= 0; i--) if (values[i] !== null) return values[i];
  return null;
};

/* What a score of a test is of: "test", or "training pictures" where the tests read those. */
report.testedOn = (run, name) => Object.hasOwn(run.tested_on, name) ? run.tested_on[name] : "test";
report.scoreName = (run, name) => {
  const on = report.testedOn(run, name);
  return on === "test" ? `test ${name}` : `${name} on the ${on}`;
};

/* What may be wider than the page: it scrolls, and says so while there is more to its right. */
report.scroll = (inner, tall = false) => {
  const box = report.make("div", { class: tall ? "scroll tall" : "scroll" }, inner);
  const look = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  box.addEventListener("scroll", look);
  new ResizeObserver(look).observe(box);
  return report.make("div", {}, report.make("p", { class: "hint soft small" }, "There is more to the right: scroll →"), box);
};

report.table = (head, rows, numeric = () => true) => {
  const row = (tag) => (cells) =>
    report.make("tr", {}, cells.map((cell, i) => (numeric(i)
      ? report.make(tag, { class: "n" }, cell)
      : report.make(tag, { class: "text" }, report.make("div", {}, cell)))));
  const body = rows.map(row("td"));
  const top = head.length ? [report.make("thead", {}, row("th")(head))] : [];
  const table = report.make("table", {}, top, report.make("tbody", {}, body));
  return report.scroll(table, rows.length > 24);
};

/* A section under its heading; gives the <div> to draw in. */
report.section = (id, title) => {
  const host = report.make("div");
  const section = report.make("section", { id }, report.make("h2", {}, title), host);
  document.getElementById("page").append(section);
  return host;
};

report.keep = () => {
  try {
    localStorage.setItem(report.place, JSON.stringify(report.settings));
  } catch {
    /* where a browser keeps nothing for files, a reload begins anew */
  }
};

report.dress = () => {
  const { theme } = report.settings;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
};

report.themeButton = () => {
  const names = { auto: "◐ auto", light: "○ light", dark: "● dark" };
  const button = report.make("button", {
    type: "button",
    title: "light, dark, or as the system has it",
    click: () => {
      const all = Object.keys(names);
      report.settings.theme = all[(all.indexOf(report.settings.theme) + 1) % all.length];
      button.textContent = names[report.settings.theme];
      report.dress();
      report.keep();
    },
  }, names[report.settings.theme]);
  return button;
};

/* While the run goes on the file is written again; the page looks again, and stays where it was scrolled to. */
report.follow = () => {
  const { refresh, written } = report.data;
  const kept = report.place + ":scroll";
  try {
    const y = sessionStorage.getItem(kept);
    if (y !== null) scrollTo(0, Number(y));
    sessionStorage.removeItem(kept);
  } catch {
    /* then it begins at the top */
  }
  if (!refresh) return;
  const again = () => {
    if (document.hidden || report.busy.some((busy) => busy())) {
      setTimeout(again, 2000);
      return;
    }
    try {
      sessionStorage.setItem(kept, String(scrollY));
    } catch {
      /* as above */
    }
    location.reload();
  };
  setTimeout(again, refresh * 1000);
  const silent = Date.now() / 1000 - written;
  if (silent > Math.max(120, 6 * refresh)) {
    const text = `No news for ${report.clock(silent)}: the run may have ended; minicaffe report RUN tells.`;
    document.querySelector("header.top").after(report.make("p", { class: "bad" }, text));
  }
};

report.start = () => {
  try {
    Object.assign(report.settings, JSON.parse(localStorage.getItem(report.place) || "{}"));
  } catch {
    /* as it is by default */
  }
  report.dress();
  document.title = `${report.data.title} · minicaffe report`;
  report.header();
  const absent = {};
  report.curves(report.section("curves", "Curves"));
  for (const one of report.data.sections) {
    if (one.left_out !== undefined) (absent[one.left_out] ??= []).push(one.title);
    else report.sections[one.id](report.section(one.id, one.title), one.data);
  }
  report.record();
  const reasons = Object.entries(absent).map(([why, titles]) => [titles.join(", "), why]);
  if (reasons.length) report.section("absent", "Left out").append(report.table([], reasons, () => false));
  report.links();
  report.follow();
};

document.addEventListener("DOMContentLoaded", () => report.start());
