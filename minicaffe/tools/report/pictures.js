"use strict";
/* Sections of pictures: confusion matrix, worst mistakes, first filters, feature maps. */

report.percent = (share) => `${(100 * share).toFixed(2)} %`;

report.warned = (data) => data.warnings.map((warning) => report.make("p", { class: "bad small" }, warning));

report.sections.confusion = (host, data) => {
  const { make, number } = report;
  const share = data.whole ? report.percent(data.right / data.whole) : "none";
  host.append(make("p", { class: "soft small" }, `${share} right of ${number(data.whole)} labels: ${data.text}.`), ...report.warned(data));
  if (data.pairs) {
    host.append(make("p", { class: "small" }, "The classes are many; these are confused most:"));
    const rows = data.pairs.map(([label, answer, count, of]) =>
      [data.names[label], data.names[answer], number(count), report.percent(count / of)]);
    host.append(report.table(["label", "answer", "times", "of the label"], rows, (i) => i > 1));
    return;
  }
  const { names, matrix } = data;
  const off = Math.max(1, ...matrix.map((row, i) => Math.max(0, ...row.filter((_, j) => j !== i))));
  const sums = matrix.map((row) => row.reduce((a, b) => a + b, 0));
  const cell = (i, j) => {
    const count = matrix[i][j];
    const depth = i === j ? count / (sums[i] || 1) : count / off;
    const hue = i === j ? "--s0" : "--s1";
    const style = count ? `background:color-mix(in srgb, var(${hue}) ${(8 + 62 * depth).toFixed(0)}%, var(--card))` : "";
    const title = `${names[i]} taken for ${names[j]}: ${number(count)} of ${number(sums[i])}`;
    return make("td", { style, title }, count ? number(count) : make("span", { class: "soft" }, "·"));
  };
  const head = make("tr", {}, make("th", { class: "soft" }, "label ↓ answer →"),
    names.map((name) => make("th", { title: name }, name)), make("th", {}, "right"));
  const rows = matrix.map((row, i) => make("tr", {}, make("th", { title: names[i] }, names[i]),
    row.map((_, j) => cell(i, j)), make("td", { class: "soft" }, sums[i] ? report.percent(row[i] / sums[i]) : "–")));
  host.append(report.scroll(make("table", { class: "matrix" }, head, rows)));
};

report.sections.mistakes = (host, data) => {
  const { make, number } = report;
  const first = data.shown.length < data.wrong ? `; the ${data.shown.length} worst are shown` : "";
  const told = `${number(data.wrong)} of ${number(data.whole)} are wrong${first}: ${data.text}.`;
  host.append(make("p", { class: "soft small" }, told), ...report.warned(data));
  const figures = data.shown.map((one) => {
    const [answer, label] = one.shares ? one.shares.map((share) => ` ${report.percent(share)}`) : ["", ""];
    return make("figure", {},
      make("img", { src: one.image, alt: `${one.label}, taken for ${one.answer}`, title: `entry ${one.entry} of the data` }),
      make("figcaption", {}, make("div", {}, make("b", {}, one.answer), answer),
        make("div", { class: "soft" }, "is ", make("b", {}, one.label), label)));
  });
  host.append(make("div", { class: "gallery" }, figures));
};

report.sections.filters = (host, data) => {
  const { make } = report;
  const width = data.width * Math.max(2, Math.min(8, Math.round(36 / data.tile)));
  host.append(make("img", { src: data.image, alt: data.text, style: `width:${width}px` }),
    make("p", { class: "soft small" }, data.text));
};

report.sections.features = (host, data) => {
  const { make } = report;
  const count = data.rows[0].images.length;
  const grid = make("div", { class: "maps", style: `--n:${count}` });
  for (const row of data.rows) {
    const maps = row.images.map((one, i) => {
      const alt = `${row.name} of ${data.labels[i] ?? "sample " + (i + 1)}`;
      return make("img", { src: one.image, alt, title: alt, class: row.input ? "input" : null });
    });
    grid.append(make("div", { class: "name" }, make("b", {}, row.name), make("div", { class: "soft" }, row.shape.replaceAll("x", "×"))), ...maps);
  }
  host.append(make("p", { class: "soft small" },
    `The first ${data.maps} maps of a blob at the most, from its least value in black to its most in white.`), grid);
};
