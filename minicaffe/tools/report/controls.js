"use strict";
/* The section of all charts: what is on the axes, smoothing, showing values, zooming into a part. */

report.curves = (host) => {
  const { make, data, settings } = report;
  if (!data.panels.length) {
    host.append(make("p", { class: "soft" }, "The log has no numbers yet."));
    return;
  }
  report.hidden = new Set();
  report.zoom = null;
  const grid = make("div", { class: "charts" });
  const charts = data.panels.map((panel, i) => report.chart(grid, panel, i < 2));
  const redraw = () => charts.forEach((chart) => chart.draw());
  const show = (x, from) => charts.forEach((chart) => chart.show(x, chart === from));
  charts.forEach((chart) => report.listen(chart, show, redraw));
  host.append(report.controls(redraw), report.legend(redraw), grid);
  redraw();
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(grid.clientWidth - width) < 2) return;
    width = grid.clientWidth;
    requestAnimationFrame(redraw);
  }).observe(grid);
};

report.controls = (redraw) => {
  const { make, settings } = report;
  const changed = (change) => (event) => {
    change(event.target);
    report.keep();
    redraw();
  };
  const axes = { iteration: "iterations", epoch: "epochs", seconds: "time" };
  const options = Object.entries(axes).map(([value, text]) =>
    make("option", { value, selected: value === settings.x ? "" : null }, text));
  const picked = changed((select) => {
    settings.x = select.value;
    report.zoom = null;
  });
  const log = { type: "checkbox", change: changed((box) => (settings.log = box.checked)) };
  const smooth = { type: "range", min: 0, max: 1, step: 0.01, value: settings.smooth };
  return make("div", { class: "controls" },
    make("label", {}, "over", make("select", { change: picked }, options)),
    make("label", {}, make("input", { ...log, checked: settings.log ? "" : null }), "log scale"),
    make("label", {}, "smoothing", make("input", { ...smooth, input: changed((range) => (settings.smooth = Number(range.value))) })),
    make("span", { class: "small mouse" }, "drag to zoom, double click for all"));
};

/* What the tests of a run were on, all of them. */
report.kindsOfTest = (runs) => {
  const all = runs.flatMap((run) => Object.keys(run.test.outputs).map((name) => report.testedOn(run, name)));
  return [...new Set(all)].join(", ") || "test";
};

/* One entry a run, which hides and shows it; of one run, training and test. */
report.legend = (redraw) => {
  const { make, data } = report;
  const tests = report.kindsOfTest(data.runs);
  const kinds = [["training", 0, ""], [tests, 1, "test"]];
  if (data.runs.length === 1) {
    return make("div", { class: "legend" }, kinds.map(([name, i, kind]) =>
      make("span", { class: "entry" }, make("span", { class: `key ${kind}`, style: `color:${report.colour(i)}` }), name)));
  }
  return make("div", { class: "legend" }, data.runs.map((run, i) => {
    const button = make("button", {
      type: "button",
      class: "entry",
      click: () => {
        if (!report.hidden.delete(i)) report.hidden.add(i);
        button.classList.toggle("off", report.hidden.has(i));
        redraw();
      },
    }, make("span", { class: "key", style: `color:${report.colour(i)}` }), run.name);
    return button;
  }), make("span", { class: "soft small" }, `dashed: ${tests}`));
};

/* A chart in the grid: `draw()` it, `show(x)` the values nearest to x, with or without the box that tells them. */
report.chart = (grid, panel, wide) => {
  const { make } = report;
  const caption = make("figcaption", {}, panel.title.slice(0, 200), make("span", {}, panel.unit));
  const figure = make("figure", { class: wide ? "chart wide" : "chart" }, caption);
  grid.append(figure);
  const chart = { figure, panel, height: wide ? 270 : 200 };
  chart.draw = () => {
    chart.width = Math.max(240, figure.clientWidth || 600);
    Object.assign(chart, report.draw(figure, panel, chart.width, chart.height));
    caption.lastChild.textContent = [panel.unit, chart.scales.told].filter(Boolean).join(", ");
    chart.marks = make("g");
    chart.svg.append(chart.marks);
    chart.tip?.remove();
    chart.tip = null;
  };
  chart.show = (x, tell) => {
    chart.marks.replaceChildren();
    chart.tip?.remove();
    chart.tip = null;
    if (x === null || !chart.curves.length) return;
    const { px, py } = chart.scales;
    const found = chart.curves.map((curve) => ({ curve, at: report.nearest(curve.shown, x) })).filter(({ at }) => at >= 0);
    if (!found.length) return;
    const at = (one) => one.curve.shown[one.at];
    const closest = found.reduce((a, b) => (Math.abs(at(a)[0] - x) <= Math.abs(at(b)[0] - x) ? a : b));
    const where = px(at(closest)[0]);
    const { top, bottom } = report.frame;
    chart.marks.append(make("line", { class: "cursor", x1: where, x2: where, y1: top, y2: chart.height - bottom }));
    for (const one of found) {
      const [cx, cy] = [px(at(one)[0]), py(at(one)[1])];
      chart.marks.append(make("circle", { cx, cy, r: 3.5, style: `fill:${one.curve.colour}` }));
    }
    if (tell) report.tell(chart, found, at(closest)[0], where);
  };
  return chart;
};

/* The box beside the pointer: the numbers of the log, and smoothed ones in brackets. */
report.tell = (chart, found, x, where) => {
  const { make } = report;
  const rows = found.map(({ curve, at }) => {
    const [there, value] = curve.points[at];
    const soft = curve.soft ? ` (${report.number(curve.shown[at][1])})` : "";
    const other = there === x ? "" : ` at ${report.axis(there).replace("iteration ", "")}`;
    return make("div", {}, make("span", { class: "key", style: `color:${curve.colour}` }),
      make("span", { class: "name" }, curve.name), make("b", {}, report.number(value, 5) + soft + other));
  });
  const scale = chart.figure.clientWidth / chart.width;
  const left = where * scale;
  const side = left > chart.figure.clientWidth / 2 ? `right:${chart.figure.clientWidth - left + 12}px` : `left:${left + 12}px`;
  chart.tip = make("div", { class: "tip", style: `top:2rem;${side}` }, make("div", { class: "soft" }, report.axis(x)), rows);
  chart.figure.append(chart.tip);
};

/* The entry whose x is nearest, of those with a number; -1 without any. */
report.nearest = (points, x) => {
  let best = -1;
  points.forEach(([px, py], i) => {
    if (py !== null && (best < 0 || Math.abs(px - x) < Math.abs(points[best][0] - x))) best = i;
  });
  return best;
};

report.listen = (chart, show, redraw) => {
  const { figure } = chart;
  const at = (event) => {
    const box = chart.svg.getBoundingClientRect();
    return chart.scales.back(((event.clientX - box.left) / box.width) * chart.width);
  };
  const on = (event) => event.target.closest?.("svg");
  let start = null;
  figure.addEventListener("pointerdown", (event) => {
    if (on(event) && event.pointerType === "mouse") start = at(event);
  });
  figure.addEventListener("pointermove", (event) => {
    if (!on(event)) return;
    show(at(event), chart);
    if (start === null) return;
    const [a, b] = [start, at(event)].map(chart.scales.px).sort((p, q) => p - q);
    chart.marks.append(report.make("rect", { class: "brush", x: a, width: b - a, y: report.frame.top, height: chart.height - 36 }));
  });
  figure.addEventListener("pointerup", (event) => {
    const ends = start === null ? null : [start, at(event)].sort((p, q) => p - q);
    start = null;
    if (!ends || chart.scales.px(ends[1]) - chart.scales.px(ends[0]) < 8) return;
    report.zoom = ends;
    redraw();
  });
  figure.addEventListener("pointerleave", () => {
    start = null;
    show(null, chart);
  });
  figure.addEventListener("dblclick", () => {
    report.zoom = null;
    redraw();
  });
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const curve = chart.curves[0];
    if (!step || !curve) return;
    event.preventDefault();
    const last = curve.shown.length - 1;
    chart.entry = Math.min(last, Math.max(0, (chart.entry ?? (step > 0 ? -1 : last + 1)) + step));
    show(curve.shown[chart.entry][0], chart);
  });
};
