"use strict";
/* The section of a detector: pictures with the boxes found in them, and the true ones dashed. */

report.sections.boxes = (host, data) => {
  const { make } = report;
  const svg = (tag, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const drawn = (box, one, dashed) => {
    const [width, height] = one.shape;
    const [x, y, w, h] = box.at.map((v, i) => v * (i % 2 ? height : width));
    const colour = dashed ? "#fff" : `hsl(${(box.class * 222.5) % 360} 90% 62%)`;
    const stroke = Math.max(width, height) / 150;
    const rectangle = svg("rect", { x, y, width: w, height: h, fill: "none", stroke: colour,
      "stroke-width": stroke, "stroke-dasharray": dashed ? `${3 * stroke} ${2 * stroke}` : "none" });
    rectangle.append(svg("title", {}, box.name));
    if (dashed) return [rectangle];
    const size = Math.max(width, height) / 16;
    const text = svg("text", { x: x + stroke, y: Math.max(y - stroke, size), "font-size": size, fill: colour,
      stroke: "#000", "stroke-width": size / 6, "paint-order": "stroke" }, box.name);
    return [rectangle, text];
  };
  host.append(make("p", { class: "soft small" }, `${data.text}. Dashed: what is there.`), ...report.warned(data));
  const figures = data.shown.map((one) => {
    const [width, height] = one.shape;
    const names = one.found.map((box) => box.name).join(", ") || "nothing found";
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": names });
    picture.append(svg("image", { href: one.image, width, height, preserveAspectRatio: "none" }));
    picture.append(...one.true.flatMap((box) => drawn(box, one, true)), ...one.found.flatMap((box) => drawn(box, one, false)));
    return make("figure", {}, picture);
  });
  host.append(make("div", { class: "gallery boxes" }, figures));
};
