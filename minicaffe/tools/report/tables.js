"use strict";
/* The net's drawing, and sections of tables: layers, what the run's record says. */

report.sections.net = (host, data) => {
  const svg = new DOMParser().parseFromString(data.svg, "image/svg+xml").documentElement;
  const style = `--w:${parseFloat(svg.getAttribute("width")) || 600}`;
  const box = report.make("div", { class: "drawing", style, click: () => box.classList.toggle("natural") }, document.importNode(svg, true));
  const look = () => box.classList.toggle("below", box.scrollTop + box.clientHeight < box.scrollHeight - 2);
  box.addEventListener("scroll", look);
  new ResizeObserver(look).observe(box);
  host.append(report.make("p", { class: "soft small" }, "A click enlarges; what is longer than the frame scrolls."), box);
};

report.sections.layers = (host, data) => {
  const { make, number, count, mib } = report;
  const timed = data.rows.some((row) => row.ms);
  const whole = data.rows.reduce((sum, row) => sum + (row.ms ? row.ms[0] + row.ms[1] : 0), 0);
  const widest = Math.max(1e-9, ...data.rows.map((row) => (row.ms ? row.ms[0] + row.ms[1] : 0)));
  const bar = (ms) => ["", "back"].map((kind, i) =>
    make("span", { class: `bar ${kind}`, style: `width:${((90 * ms[i]) / widest).toFixed(1)}px` }));
  const top = (row) => ([name, shape]) => {
    const own = row.tops.length === 1 && (name === row.name || row.in_place);
    return `${own ? "" : name + " "}${shape.join("×") || "scalar"}`;
  };
  const share = (ms) => `${((100 * (ms[0] + ms[1])) / (whole || 1)).toFixed(1)} %`;
  const times = (ms) => [ms[0].toFixed(3), ms[1].toFixed(3), make("span", { class: "bars", title: share(ms) }, bar(ms))];
  const rows = data.rows.map((row) => [
    row.name, row.type,
    row.tops.map(top(row)).join(", ") + (row.in_place ? " in place" : ""),
    row.params ? count(row.params) : "",
    row.work ? count(row.work) : "",
    mib(row.blobs), mib(row.columns),
    ...(!timed ? [] : row.ms ? times(row.ms) : ["", "", ""]),
  ]);
  const sum = (key) => data.rows.reduce((total, row) => total + row[key], 0);
  const ms = (i) => data.rows.reduce((total, row) => total + (row.ms ? row.ms[i] : 0), 0);
  const speed = `${number(1000 / (whole || 1), 3)} iter/s`;
  rows.push([
    make("b", {}, "all"), "", "", count(sum("params")), count(sum("work")),
    mib(data.bytes.blobs), mib(data.bytes.columns),
    ...(timed ? [ms(0).toFixed(3), ms(1).toFixed(3), speed] : []),
  ]);
  const head = ["layer", "type", "tops", "parameters", "multiply-adds", "blobs MiB", "columns MiB",
    ...(timed ? ["forward ms", "backward ms", ""] : [])];
  host.append(report.table(head, rows, (i) => i > 2 && i < 9));
  const shared = `With gradients sharing memory, as in training, all blobs take ${mib(data.bytes.shared)} MiB; ` +
    `the parameters are ${mib(data.bytes.parameters)} MiB.`;
  host.append(...[shared, ...data.notes].map((note) => make("p", { class: "soft small" }, note)));
};

/* Scores that are lists, events, environment and command of each run. */
report.record = () => {
  const { make, data } = report;
  const several = data.runs.length > 1;
  const scores = report.section("scores", report.kindsOfTest(data.runs) === "test" ? "Test scores" : "Scores");
  const events = report.section("events", "Events");
  const about = report.section("environment", "Environment");
  for (const run of data.runs) {
    const head = () => (several ? [make("h3", {}, run.name)] : []);
    scores.append(...head(), report.scoreTable(run));
    events.append(...head(), report.eventTable(run));
    const rows = run.about.map(([key, value]) => [make("span", { class: "soft" }, key), make("div", { class: "clip" }, value)]);
    about.append(...head(), make("pre", {}, run.command || "no command is recorded"), report.table([], rows, () => false));
  }
};

/* The last test, the best of each output, and where that was. */
report.scoreTable = (run) => {
  const { make, number, score } = report;
  const entries = Object.entries(run.scores);
  if (!entries.length) return make("p", { class: "soft" }, "No test yet.");
  const rows = entries.flatMap(([name, value]) => {
    if (Array.isArray(value)) return value.flat(Infinity).map((one, i) => [`${name}[${i}]`, score(one), "", ""]);
    const column = run.test.outputs[name] || [];
    const known = column.map((y, i) => [y, run.test.iteration[i]]).filter(([y]) => typeof y === "number");
    const extreme = (better) => known.reduce((a, b) => (better(b[0], a[0]) ? b : a), known[0]);
    const [low, high] = known.length ? [extreme((a, b) => a < b), extreme((a, b) => a > b)] : [[], []];
    const shown = ([y, at]) => (y === undefined ? "" : `${score(y)} at ${number(at)}`);
    const on = report.testedOn(run, name);
    return [[on === "test" ? name : report.scoreName(run, name), score(value), shown(low), shown(high)]];
  });
  return report.table(["output", "last", "lowest", "highest"], rows.slice(0, 1100), (i) => i > 0);
};

report.eventTable = (run) => {
  const { make, number } = report;
  if (!run.events.length) return make("p", { class: "soft" }, "Nothing but iterations.");
  const rows = run.events.map((event) => [
    number(event.iteration), report.clock(event.seconds),
    event.kind === "snapshot" ? `snapshot ${event.path}${event.best ? ", the best so far" : ""}` : String(event.text),
  ]);
  const shown = rows.length > 60 ? [...rows.slice(0, 10), ["", "", `… ${rows.length - 50} more …`], ...rows.slice(-40)] : rows;
  return report.table(["iteration", "time", ""], shown, (i) => i < 2);
};
