"use strict";
/* A drawing made ready for a net as `minicaffe predict` makes ready a picture's file.

   Planes are flat arrays with .w and .h; a resize is Pillow's, with its roundings. */
hand.plane = (w, h, data = new Uint8ClampedArray(w * h)) => Object.assign(data, { w, h });

/* To the nearest, halves to the even one: as Python rounds. */
hand.round = (v) => (Math.abs(v % 1) === 0.5 ? 2 * Math.round(v / 2) : Math.round(v));

/* The columns and rows exchanged */
hand.turned = (a) => {
  const b = hand.plane(a.h, a.w);
  for (let y = 0; y < a.h; y++) for (let x = 0; x < a.w; x++) b[x * a.h + y] = a[y * a.w + x];
  return b;
};

/* A resize of the rows by the filter of Lanczos with three lobes. */
hand.narrowed = (a, w) => {
  const b = hand.plane(w, a.h), scale = a.w / w, wide = Math.max(scale, 1);
  const sinc = (t) => (t === 0 ? 1 : Math.sin(Math.PI * t) / (Math.PI * t));
  for (let x = 0; x < w; x++) {
    const middle = (x + 0.5) * scale;
    const first = Math.max(0, Math.floor(middle - 3 * wide + 0.5));
    const last = Math.min(a.w, Math.floor(middle + 3 * wide + 0.5));
    const weights = [];
    for (let i = first; i < last; i++) {
      const t = (i - middle + 0.5) / wide;
      weights.push(Math.abs(t) < 3 ? sinc(t) * sinc(t / 3) : 0);
    }
    const whole = weights.reduce((sum, v) => sum + v, 0);
    for (let y = 0; y < a.h; y++) {
      let sum = 0;
      for (let i = first; i < last; i++) sum += weights[i - first] * a[y * a.w + i];
      b[y * w + x] = Math.floor(sum / whole + 0.5);
    }
  }
  return b;
};

hand.resized = (a, w, h) => {
  const across = a.w === w ? a : hand.narrowed(a, w);
  return a.h === h ? across : hand.turned(hand.narrowed(hand.turned(across), h));
};

/* Scaled to fit into w x h, the aspect kept. */
hand.fitted = (a, w, h) => {
  const factor = Math.min(h / a.h, w / a.w);
  const size = (n) => Math.max(1, hand.round(n * factor));
  return hand.resized(a, size(a.w), size(a.h));
};

/* On black, the point (x, y) of it in the middle of w x h. */
hand.placed = (a, w, h, x = (a.w - 1) / 2, y = (a.h - 1) / 2) => {
  const b = hand.plane(w, h);
  const shift = (middle, size, whole) => Math.min(Math.max(hand.round((whole - 1) / 2 - middle), 0), whole - size);
  const left = shift(x, a.w, w), top = shift(y, a.h, h);
  for (let i = 0; i < a.h; i++) for (let j = 0; j < a.w; j++) b[(top + i) * w + left + j] = hand.round(a[i * a.w + j]);
  return b;
};

/* Noise smoothed: Gauss' bell of 0.8 pixels as three means over a little more than a pixel, along both axes. */
hand.smoothed = (a) => {
  const share = 0.64 / (6 * (1 - 0.64 / 3));
  const along = (from) => {
    const to = hand.plane(from.w, from.h);
    for (let y = 0; y < from.h; y++) {
      for (let x = 0; x < from.w; x++) {
        const at = y * from.w + x, before = from[x ? at - 1 : at], after = from[x < from.w - 1 ? at + 1 : at];
        to[at] = Math.floor((from[at] + share * (before + after)) / (1 + 2 * share) + 0.5);
      }
    }
    return to;
  };
  const thrice = (from) => along(along(along(from)));
  return hand.turned(thrice(hand.turned(thrice(a))));
};

/* Black ink on white paper as MNIST has its digits: white on black, cropped, 20 of 28 pixels high or wide, the
   middle of its mass in the middle. */
hand.digit = (paper, w, h) => {
  const ink = hand.smoothed(paper).map((v) => hand.round(255 * Math.min(Math.max(((255 - v) / 255 - 0.15) / 0.7, 0), 1)));
  let [left, right, top, bottom] = [paper.w, -1, paper.h, -1];
  for (let y = 0; y < paper.h; y++) {
    for (let x = 0; x < paper.w; x++) {
      if (ink[y * paper.w + x] > 0.25 * 255) {
        [left, right] = [Math.min(left, x), Math.max(right, x)];
        [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      }
    }
  }
  const size = Math.max(right - left, bottom - top) + 1;
  if (size < Math.max(4, 0.04 * Math.max(paper.w, paper.h))) return hand.plane(w, h); // nothing, or a speck
  const cropped = hand.plane(right - left + 1, bottom - top + 1);
  for (let y = 0; y < cropped.h; y++) for (let x = 0; x < cropped.w; x++) cropped[y * cropped.w + x] = ink[(top + y) * paper.w + left + x];
  const small = hand.fitted(cropped, hand.round((w * 20) / 28), hand.round((h * 20) / 28));
  const most = Math.max(...small), strokes = [...small].filter((v) => v > most / 4).sort((a, b) => a - b);
  const at = 0.9 * (strokes.length - 1), low = strokes[Math.floor(at)], high = strokes[Math.ceil(at)];
  const factor = 255 / (low + (high - low) * (at % 1));
  const bright = hand.plane(small.w, small.h, Float64Array.from(small, (v) => Math.min(v * factor, 255)));
  let [sum, x, y] = [0, 0, 0];
  bright.forEach((v, i) => {
    sum += v;
    x += v * (i % bright.w);
    y += v * Math.floor(i / bright.w);
  });
  return hand.placed(bright, w, h, x / sum, y / sum);
};

/* What is on a canvas, RGBA, as a picture, flat (c, h, w), uint8.

   `data` is {image: [c, h, w], digit, blue_first}. */
hand.prepared = ({ data: rgba, width, height }, { image: [c, h, w], digit, blue_first }) => {
  const planes = [0, 1, 2].map((k) => hand.plane(width, height, Uint8ClampedArray.from({ length: width * height }, (_, i) => rgba[4 * i + k])));
  const [red, green, blue] = planes;
  const grey = () => red.map((v, i) => hand.round(0.299 * v + 0.587 * green[i] + 0.114 * blue[i]));
  const sized = (plane) => hand.placed(hand.fitted(plane, w, h), w, h);
  if (c === 3) return Uint8Array.from((blue_first ? planes.reverse() : planes).flatMap((plane) => [...sized(plane)]));
  const paper = hand.plane(width, height, grey());
  if (digit) return Uint8Array.from(hand.digit(paper, w, h));
  return Uint8Array.from(sized(paper));
};
