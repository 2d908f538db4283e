"use strict";
/* The head of the page: what run it is, how it stands, its numbers; of several runs, a table of them. */

report.colour = (run) => `var(--s${run % 8})`;

report.header = () => {
  const { make, data } = report;
  const page = document.getElementById("page");
  page.replaceChildren();
  const one = data.runs.length === 1 ? data.runs[0] : null;
  const state = one ? [make("span", { class: `state ${one.state}` }, one.state)] : [];
  page.append(
    make("header", { class: "top" },
      make("h1", { class: "clip" }, one ? one.name : `${data.runs.length} runs`), state,
      make("span", { class: "push soft small" }, "written " + new Date(data.written * 1000).toLocaleString()),
      report.themeButton()),
  );
  if (one) {
    page.append(make("p", { class: "soft" }, one.told), make("nav"), report.tiles(one, data.totals[0]));
  } else {
    page.append(make("nav"));
    report.runs(report.section("runs", "Runs"));
    report.differs(report.section("differs", "What differs"));
  }
};

report.links = () => {
  const entries = [...document.querySelectorAll("section[id]")].map((section) =>
    report.make("a", { href: "#" + section.id }, section.querySelector("h2").textContent));
  document.querySelector("nav").append(...entries);
};

/* The numbers one looks for first. */
report.tiles = (run, total) => {
  const { make, number, last } = report;
  const facts = Object.entries(run.scores)
    .filter(([, score]) => typeof score === "number")
    .slice(0, 4)
    .map(([name, score]) => [`${report.scoreName(run, name)}, last`, report.score(score)]);
  const { train } = run;
  const best = run.events.filter((event) => event.kind === "snapshot" && event.best).at(-1);
  if (best) facts.push(["iteration of the best", number(best.iteration)]);
  const speeds = train.images_per_s.filter((value) => value !== null).sort((a, b) => a - b);
  facts.push(["training loss", report.score(last(train.loss))]);
  facts.push([total ? `of ${number(total)} iterations` : "iterations", number(run.iteration)]);
  const share = run.iteration / (last(train.iteration) || run.iteration || 1); // of what was displayed last
  if (last(train.epoch) !== null) facts.push(["epochs", number(last(train.epoch) * share, 3)]);
  if (speeds.length) facts.push(["images/s, median", number(Math.round(speeds[speeds.length >> 1]))]);
  const seconds = Math.max(last(train.seconds) || 0, last(run.test.seconds) || 0);
  facts.push(["time", report.clock(seconds)]);
  return make("div", { class: "tiles" },
    facts.map(([what, value]) => make("div", { class: "tile", title: what }, make("b", {}, value), make("span", {}, what))));
};

report.runs = (host) => {
  const { make, number, last, data } = report;
  const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.scores)))]
    .filter((name) => data.runs.some((run) => typeof run.scores[name] === "number"));
  const title = (name) => [...new Set(data.runs.filter((run) => name in run.scores).map((run) => report.scoreName(run, name)))];
  const of = (run, name) => {
    if (typeof run.scores[name] !== "number") return report.score(null);
    const on = title(name).length > 1 ? ` (${report.testedOn(run, name)})` : "";
    return report.score(run.scores[name]) + on;
  };
  const rows = data.runs.map((run, i) => [
    make("span", { class: "entry" }, make("span", { class: "key", style: `color:${report.colour(i)}` }), run.name),
    run.state,
    number(run.iteration),
    report.clock(Math.max(last(run.train.seconds) || 0, last(run.test.seconds) || 0)),
    report.score(last(run.train.loss)),
    ...names.map((name) => of(run, name)),
  ]);
  const head = ["run", "state", "iterations", "time", "training loss", ...names.map((name) => (title(name).length > 1 ? name : title(name)[0]))];
  host.append(report.table(head, rows, (i) => i > 1));
};

report.differs = (host) => {
  const { data, make } = report;
  if (!data.differs.length) {
    host.append(make("p", { class: "soft" }, "Nothing: models, settings and machines are alike."));
    return;
  }
  host.append(report.table(["", ...data.runs.map((run) => run.name)],
    data.differs.map(([key, ...values]) => [make("code", {}, key), ...values]), () => false));
};
