"use strict";
/* One chart: an SVG of curves over iterations, epochs or time, whose values a pointer or the arrow keys show. */

report.frame = { left: 62, right: 10, top: 10, bottom: 26 };

/* The points of a series as [x, y, entry]; y is null where the log has no number. */
report.points = (series) => {
  const run = report.data.runs[series.run];
  const columns = run[series.kind];
  const ys = series.outputs ? columns.outputs[series.column] : columns[series.column];
  const known = columns[report.settings.x];
  const xs = known.some((x) => x !== null) ? known : columns.iteration;
  return ys.map((y, i) => [xs[i], typeof y === "number" ? y : null, i]).filter(([x]) => x !== null);
};

report.few = 30; // points that are drawn as they are

/* The mean of so many points on either side, of fewer near an end: the curve begins and ends where the points do. */
report.smoothed = (points, reach) => {
  const known = points.filter(([, y]) => y !== null);
  const sums = [0];
  for (const [, y] of known) sums.push(sums.at(-1) + y);
  let k = -1;
  return points.map(([x, y, i]) => {
    if (y === null) return [x, y, i];
    k++;
    const r = Math.min(reach, k, known.length - 1 - k);
    return [x, r ? (sums[k + r + 1] - sums[k - r]) / (2 * r + 1) : y, i];
  });
};

/* Round numbers from low to high, some `count` of them. */
report.ticks = (low, high, count) => {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((n) => n * power >= rough * 0.999) * power;
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
};

report.logTicks = (low, high) => {
  const decades = Math.log10(high / low);
  const every = Math.ceil(decades / 5);
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    if (power % every) continue;
    for (const n of decades < 1.5 ? [1, 2, 3, 5, 7] : decades < 3 ? [1, 3] : [1]) found.push(n * 10 ** power);
  }
  return found.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
};

/* Ticks as text, with as many digits as tell them apart. */
report.labels = (ticks) => {
  const texts = [4, 5, 6, 7, 8].map((digits) => ticks.map((tick) => report.number(tick, digits)));
  return texts.find((some) => new Set(some).size === some.length) || texts[0];
};

/* A path through points; where many share a pixel's column only the first, least, most and last are drawn. */
report.path = (points, px, py) => {
  const kept = [];
  let column = [];
  const flush = () => {
    if (column.length <= 4) kept.push(...column);
    else {
      const ys = column.map((point) => point[1]);
      const chosen = [0, ys.indexOf(Math.min(...ys)), ys.indexOf(Math.max(...ys)), column.length - 1];
      kept.push(...[...new Set(chosen)].sort((a, b) => a - b).map((i) => column[i]));
    }
    column = [];
  };
  for (const point of points) {
    if (point[1] === null) {
      flush();
      kept.push(null);
      continue;
    }
    if (column.length && Math.floor(px(column[0][0])) !== Math.floor(px(point[0]))) flush();
    column.push(point);
  }
  flush();
  let pen = "M";
  return kept.map((point) => {
    if (point === null) {
      pen = "M";
      return "";
    }
    const drawn = `${pen}${px(point[0]).toFixed(1)} ${py(point[1]).toFixed(1)}`;
    pen = "L";
    return drawn;
  }).join("");
};

/* Numbers below one, such as accuracies, by how near they are to it: 0, 0.5, 0.9, 0.99, 0.999. */
report.ticksToOne = (low, high) => {
  const found = [0];
  for (let power = 1; power < 12; power++) {
    for (const n of [5, 2, 1]) found.push(Number((1 - n * 10 ** -power).toPrecision(12)));
  }
  const inside = found.filter((tick) => tick >= low && tick <= high);
  return inside.length < 8 ? inside : inside.filter((tick) => /^0(\.9*)?$/.test(String(tick)) || tick === 0.5);
};

/* Ticks along x, the last at the end of the data: those that its text would touch make room. */
report.ticksToEnd = (x0, x1, px, count) => {
  const round = report.ticks(x0, x1, count).filter((tick) => report.settings.x !== "iteration" || Number.isInteger(tick));
  return report.zoom ? round : [...round.filter((tick) => px(x1) - px(tick) > 60), x1];
};

/* How values go up a chart: { f, back, ticks, told }, as they are or on the log scale that the panel can have. */
report.rise = (panel, low, high) => {
  const wanted = report.settings.log && panel.log;
  if (wanted === "to one" && low >= 0 && high < 1) {
    return { f: (y) => -Math.log10(1 - y), back: (v) => 1 - 10 ** -v, ticks: report.ticksToOne, told: "log scale of the distance to 1" };
  }
  if ((wanted === true || (wanted && high > 1)) && low > 0) return { f: Math.log10, back: (v) => 10 ** v, ticks: report.logTicks, told: "log scale" };
  return { f: (y) => y, back: (v) => v, ticks: report.ticks, told: "" };
};

/* The scales of a chart: from values to pixels, and the ticks. */
report.scales = (curves, panel, width, height) => {
  const { left, right, top, bottom } = report.frame;
  const all = curves.flatMap((curve) => [...curve.points, ...curve.shown]).filter(([, y]) => y !== null);
  const xs = all.map(([x]) => x);
  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
  let [x0, x1] = report.zoom || [least(xs), most(xs)];
  if (!(x1 > x0)) [x0, x1] = [(x0 || 0) - 0.5, (x0 || 0) + 0.5];
  const ys = all.filter(([x]) => x >= x0 && x <= x1).map(([, y]) => y);
  let [y0, y1] = ys.length ? [panel.unit === "MiB" ? 0 : least(ys), most(ys)] : [0, 1];
  if (!(y1 - y0 > 1e-9 * Math.max(Math.abs(y0), Math.abs(y1)))) [y0, y1] = y0 ? [y0 - Math.abs(y0) / 2, y0 + Math.abs(y0) / 2] : [-1, 1];
  const { f, back, ticks, told } = report.rise(panel, y0, y1);
  const spare = (f(y1) - f(y0)) * 0.05;
  const [f0, f1] = [f(y0) - spare, f(y1) + spare];
  const [w, h] = [width - left - right, height - top - bottom];
  const some = ticks(back(f0), back(f1), Math.max(2, h / 42));
  const px = (x) => left + ((x - x0) / (x1 - x0)) * w;
  return {
    x0, x1, px, told,
    py: (y) => top + h - ((f(y) - f0) / (f1 - f0)) * h,
    back: (px) => x0 + ((px - left) / w) * (x1 - x0),
    xticks: report.ticksToEnd(x0, x1, px, Math.max(3, w / 70)),
    yticks: some.length > 1 ? some : report.ticks(back(f0), back(f1), Math.max(2, h / 42)),
  };
};

report.style = (series) => {
  const several = report.data.runs.length > 1;
  const colour = several ? report.colour(series.run) : report.colour(series.kind === "test" ? 1 : 0);
  const run = report.data.runs[series.run];
  const name = series.kind === "test" ? report.testedOn(run, series.column) : "training";
  return { colour, name: (several ? `${run.name}, ` : "") + name };
};

report.axis = (x) => (report.settings.x === "seconds" ? report.clock(x) : `${report.settings.x} ${report.number(x)}`);

/* Draw a panel into its figure; gives { svg, curves, scales } for whoever shows values on it. */
report.draw = (figure, panel, width, height) => {
  const { make, settings, frame } = report;
  const hidden = report.hidden || new Set();
  const curves = panel.series.filter((series) => !hidden.has(series.run)).map((series) => {
    const points = report.points(series);
    const many = points.filter(([, y]) => y !== null).length >= report.few;
    const soften = series.kind === "train" && panel.noisy && settings.smooth > 0 && many;
    const shown = soften ? report.smoothed(points, Math.round(10 ** (3 * settings.smooth))) : points;
    return { series, points, shown, soft: soften, ...report.style(series) };
  });
  const scales = report.scales(curves, panel, width, height);
  const { px, py, xticks, yticks } = scales;
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": panel.title });
  const labels = report.labels(yticks);
  for (const [i, tick] of yticks.entries()) {
    svg.append(
      make("line", { class: "grid", x1: frame.left, x2: width - frame.right, y1: py(tick), y2: py(tick) }),
      make("text", { x: frame.left - 7, y: py(tick) + 3.5, "text-anchor": "end" }, labels[i]),
    );
  }
  for (const tick of xticks) {
    const text = settings.x === "seconds" ? report.clock(tick) : report.number(tick);
    const end = px(tick) > width - 30 ? "end" : "middle";
    svg.append(make("text", { x: px(tick), y: height - 8, "text-anchor": end }, text));
  }
  const clip = `inset(${frame.top - 3}px ${frame.right - 4}px ${frame.bottom - 3}px ${frame.left - 1}px)`;
  const drawing = make("g", { style: report.zoom ? `clip-path:${clip}` : null });
  for (const { series, points, shown, soft, colour } of curves) {
    const count = points.filter(([, y]) => y !== null).length;
    const named = { "data-run": series.run, "data-kind": series.kind, "data-column": series.column, "data-points": count };
    const style = `stroke:${colour}`;
    drawing.append(make("path", { ...named, class: soft ? "raw" : series.kind, style, d: report.path(points, px, py) }));
    if (soft) drawing.append(make("path", { class: series.kind, style, d: report.path(shown, px, py) }));
    const dots = series.kind === "test" || count === 1 ? points.filter(([, y]) => y !== null) : [];
    if (dots.length <= 60) {
      drawing.append(...dots.map(([x, y]) => make("circle", { cx: px(x), cy: py(y), r: 2.6, style: `fill:${colour}` })));
    }
  }
  svg.append(drawing);
  figure.querySelector("svg")?.remove();
  figure.append(svg);
  return { svg, curves, scales };
};
