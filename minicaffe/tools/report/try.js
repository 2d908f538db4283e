"use strict";
/* Section "Try it by hand": a canvas to draw on or to drop a picture on, samples to choose from, and the net's answer. */

report.sections.try = (host, data) => {
  const { make } = report;
  const [c, h, w] = data.image, [, , oh, ow] = data.crop;
  const times = Math.max(1, Math.floor(280 / Math.max(h, w)));
  const answer = hand.net(data.net);
  const transform = { crop: data.crop, scale: data.scale, mean: hand.decode(data.mean) };
  const [paper, seen] = [[w * times, h * times], [ow, oh]].map(([width, height]) => make("canvas", { width, height }));
  const brush = paper.getContext("2d", { willReadFrequently: true });
  const thing = data.digit ? "a digit" : "something";
  const bars = hand.bars(data);
  let drawn = false, waiting = false;

  /* The answer to a picture, uint8 flat (c, h, w), and what the net sees of it */
  const show = (picture) => {
    const pixels = hand.transformed(picture, data.image, { ...transform, mean: [0], scale: 1 });
    hand.paint(seen, pixels, c, data.blue_first);
    bars.show(answer(hand.transformed(picture, data.image, transform)));
  };
  const look = () => {
    waiting = false;
    if (!drawn) return;
    const started = performance.now();
    show(hand.prepared(brush.getImageData(0, 0, paper.width, paper.height), data));
    bars.took(performance.now() - started);
  };
  const clear = () => {
    drawn = false;
    brush.fillStyle = "#fff";
    brush.fillRect(0, 0, paper.width, paper.height);
    hand.paint(seen, new Uint8Array(c * oh * ow), c, false);
    bars.show(null);
  };

  const wide = make("input", { type: "range", min: 10, max: 44, value: 20 });
  const colour = c === 3 ? make("input", { type: "color", value: "#202020" }) : null;
  hand.stroke(paper, (from, to) => {
    brush.strokeStyle = colour ? colour.value : "#000";
    [brush.lineWidth, brush.lineCap] = [(wide.value * paper.width) / 280, "round"];
    brush.beginPath();
    brush.moveTo(...from);
    brush.lineTo(...to);
    brush.stroke();
    drawn = true;
    if (!waiting) requestAnimationFrame(look);
    waiting = true;
  });
  report.busy.push(() => drawn);

  /* A picture's file, turned as its EXIF says and laid on white, as `minicaffe predict` takes it */
  const photo = async (file) => {
    const bitmap = await createImageBitmap(file).catch(() => null);
    clear();
    if (!bitmap) return bars.say(`${file.name} is no picture that this browser can read.`);
    const whole = make("canvas", { width: bitmap.width, height: bitmap.height });
    const started = performance.now(), on = whole.getContext("2d", { willReadFrequently: true });
    on.fillStyle = "#fff";
    on.fillRect(0, 0, whole.width, whole.height);
    on.drawImage(bitmap, 0, 0);
    const scale = Math.min(paper.width / whole.width, paper.height / whole.height);
    const [width, height] = [whole.width * scale, whole.height * scale];
    brush.drawImage(whole, (paper.width - width) / 2, (paper.height - height) / 2, width, height);
    show(hand.prepared(on.getImageData(0, 0, whole.width, whole.height), data));
    return bars.took(performance.now() - started);
  };
  paper.addEventListener("dragover", (event) => event.preventDefault());
  paper.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) photo(event.dataTransfer.files[0]);
  });
  const file = make("input", { type: "file", accept: "image/*", change: () => file.files.length && photo(file.files[0]) });

  const save = () => make("a", { href: paper.toDataURL("image/png"), download: "drawing.png" }).click();
  const samples = (data.samples || []).map((one) => {
    const picture = hand.decode(one.picture, Uint8Array);
    const small = make("canvas", { width: ow, height: oh });
    hand.paint(small, picture, c, data.blue_first);
    const choose = () => {
      clear();
      show(picture);
    };
    const name = `sample: ${data.classes[one.label] ?? one.label}`;
    return make("button", { type: "button", title: name, "aria-label": name, click: choose }, small);
  });

  paper.setAttribute("role", "img");
  paper.setAttribute("aria-label", `Draw ${thing} here with a mouse, a finger or a pen${samples.length ? "; the samples below can be chosen by keyboard" : ""}`);
  seen.setAttribute("role", "img");
  seen.setAttribute("aria-label", "What the net sees");
  paper.className = "paper";
  const controls = make("div", { class: "controls" },
    make("button", { type: "button", click: clear }, "Clear"),
    make("label", {}, "picture", file),
    make("label", {}, "brush", wide), colour ? make("label", {}, "colour", colour) : null,
    make("button", { type: "button", click: save, title: "minicaffe predict answers the picture as this page does" }, "Save as PNG"));
  host.append(
    make("p", { class: "soft small" }, `Drop a picture on the paper, or choose one; or draw ${thing}${samples.length ? ", or choose a sample" : ""}; the net (${data.text}) computes its answer in this page.`),
    make("div", { class: "try" },
      make("div", {}, paper, controls),
      make("figure", {}, seen, make("figcaption", { class: "soft small" }, `what the net sees, ${oh} × ${ow}`)),
      bars.host),
    make("div", { class: "samples" }, samples));
  clear();
};

/* Have strokes on a canvas, by whatever points, call draw(from, to) in its pixels. */
hand.stroke = (canvas, draw) => {
  let last = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * canvas.width) / box.width, ((event.clientY - box.top) * canvas.height) / box.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    last = at(event);
    draw(last, last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const passed = event.getCoalescedEvents ? event.getCoalescedEvents() : [];
    for (const one of passed.length ? passed : [event]) {
      const next = at(one);
      draw(last, next);
      last = next;
    }
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
};

/* Pixels, uint8 flat (c, h, w), on a canvas of their size. */
hand.paint = (canvas, pixels, c, blueFirst) => {
  const { width, height } = canvas, area = width * height;
  const image = new ImageData(width, height);
  const planes = c === 3 ? (blueFirst ? [2, 1, 0] : [0, 1, 2]) : [0, 0, 0];
  for (let i = 0; i < area; i++) {
    planes.forEach((plane, k) => (image.data[4 * i + k] = pixels[plane * area + i]));
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
};

/* The answer as bars: of all classes in their order or, of many, of the likeliest. */
hand.bars = ({ classes, count }) => {
  const { make } = report;
  const list = make("div", { class: "bars" }), took = make("p", { class: "soft small" });
  const spoken = make("p", { class: "spoken", "aria-live": "polite" });
  const name = (i) => classes[i] ?? String(i);
  const show = (shares) => {
    took.textContent = shares === null ? "The answer comes here." : "";
    spoken.textContent = "";
    list.replaceChildren();
    if (shares === null) {
      const rows = Array.from({ length: count > 12 ? 0 : count }, (_, i) => make("div", {}, make("span", {}, name(i)), make("i")));
      list.append(...rows);
      return;
    }
    const order = [...shares.keys()], best = order.reduce((a, b) => (shares[b] > shares[a] ? b : a));
    const few = order.length > 12 ? order.sort((a, b) => shares[b] - shares[a]).slice(0, 10) : order;
    for (const i of few) {
      const share = `${(100 * shares[i]).toFixed(1)} %`;
      list.append(make("div", { class: i === best ? "best" : null, "data-class": i, "data-share": shares[i] },
        make("span", {}, name(i)), make("i", {}, make("b", { style: `width:${100 * shares[i]}%` })), make("span", { class: "n" }, share)));
    }
    spoken.textContent = `${name(best)}, ${(100 * shares[best]).toFixed(1)} %`;
  };
  return {
    host: make("div", { class: "answer", style: `--name: ${classes.length ? "7rem" : "1.2rem"}` }, spoken, list, took),
    show,
    say: (text) => (took.textContent = text),
    took: (ms) => (took.textContent = `computed in ${ms.toFixed(0)} ms`),
  };
};
