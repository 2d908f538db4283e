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

/* Filters: how far they reach, and the weight at a distance. Lanczos' has three lobes. */
hand.sinc = (t) => (t === 0 ? 1 : Math.sin(Math.PI * t) / (Math.PI * t));
hand.lanczos = { reach: 3, weigh: (t) => (Math.abs(t) < 3 ? hand.sinc(t) * hand.sinc(t / 3) : 0) };
hand.triangle = { reach: 1, weigh: (t) => Math.max(0, 1 - Math.abs(t)) };

/* A resize of the rows by a filter. */
hand.narrowed = (a, w, { reach, weigh }) => {
  const b = hand.plane(w, a.h), scale = a.w / w, wide = Math.max(scale, 1);
  for (let x = 0; x < w; x++) {
    const middle = (x + 0.5) * scale;
    const first = Math.max(0, Math.floor(middle - reach * wide + 0.5));
    const last = Math.min(a.w, Math.floor(middle + reach * wide + 0.5));
    const weights = [];
    for (let i = first; i < last; i++) weights.push(weigh((i - middle + 0.5) / wide));
    const whole = weights.reduce((sum, v) => sum + v, 0);
    for (let y = 0; y < a.h; y++) {
      let sum = 0;
      for (let i = first; i < last; i++) sum += weights[i - first] * a[y * a.w + i];
      b[y * w + x] = Math.floor(sum / whole + 0.5);
    }
  }
  return b;
};

hand.resized = (a, w, h, filter = hand.lanczos) => {
  const across = a.w === w ? a : hand.narrowed(a, w, filter);
  return a.h === h ? across : hand.turned(hand.narrowed(hand.turned(across), h, filter));
};

/* Of another size as OpenCV's INTER_LINEAR has it, bit for bit: `bilinear` of tools/data/augment.py. */
hand.linear = (a, w, h) => {
  if (a.w === w && a.h === h) return a;
  const b = hand.plane(w, h), one = 2048;
  if (a.w === 2 * w && a.h === 2 * h) {
    for (let y = 0; y < h; y++) {
      for (let x = 0; x < w; x++) {
        const i = 2 * y * a.w + 2 * x;
        b[y * w + x] = (a[i] + a[i + 1] + a[i + a.w] + a[i + a.w + 1] + 2) >> 2;
      }
    }
    return b;
  }
  const taps = (size, wanted, rows) => Array.from({ length: wanted }, (_, i) => {
    const at = Math.fround((i + 0.5) * (size / wanted) - 0.5), first = Math.floor(at);
    const share = !rows && (first < 0 || first >= size - 1) ? 0 : Math.fround(at - first);
    const within = (j) => Math.min(Math.max(j, 0), size - 1);
    return [within(first), within(first + 1), hand.round(Math.fround((1 - share) * one)), hand.round(Math.fround(share * one))];
  });
  const rows = taps(a.h, h, true), columns = taps(a.w, w, false);
  rows.forEach(([top, below, upper, lower], y) => columns.forEach(([left, right, first, second], x) => {
    const across = (row) => (a[row * a.w + left] * first + a[row * a.w + right] * second) >> 4;
    b[y * w + x] = (((across(top) * upper) >> 16) + ((across(below) * lower) >> 16) + 2) >> 2;
  }));
  return b;
};

/* The shorter side scaled to that of w x h; what hangs over is cut off, what lacks is black. */
hand.covered = (a, w, h, crop) => {
  const size = Math.min(w, h);
  const [ow, oh] = a.h <= a.w ? [Math.max(1, Math.floor((size * a.w) / a.h)), size] : [size, Math.max(1, Math.floor((size * a.h) / a.w))];
  const scaled = hand.resized(a, ow, oh, hand.triangle), b = hand.plane(w, h);
  const begin = (whole, own) => {
    const part = crop || Math.min(whole, own);
    return Math.floor((whole - part) / 2) - Math.floor((own - part) / 2);
  };
  const [left, top] = [begin(w, ow), begin(h, oh)];
  for (let y = Math.max(0, top); y < Math.min(h, top + oh); y++) {
    for (let x = Math.max(0, left); x < Math.min(w, left + ow); x++) b[y * w + x] = scaled[(y - top) * ow + x - left];
  }
  return b;
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

   `data` is {image: [c, h, w], crop: [top, left, h, w], fit, digit, blue_first}. */
hand.prepared = ({ data: rgba, width, height }, { image: [c, h, w], crop, fit, digit, blue_first }) => {
  const planes = [0, 1, 2].map((k) => hand.plane(width, height, Uint8ClampedArray.from({ length: width * height }, (_, i) => rgba[4 * i + k])));
  const [red, green, blue] = planes;
  const grey = () => red.map((v, i) => hand.round(0.299 * v + 0.587 * green[i] + 0.114 * blue[i]));
  const fits = {
    contain: (plane) => hand.placed(hand.fitted(plane, w, h), w, h),
    cover: (plane) => hand.covered(plane, w, h, crop[2] < h ? crop[2] : 0),
    stretch: (plane) => hand.linear(plane, w, h),
  };
  const sized = fits[fit] ?? fits.contain;
  if (c === 3) return Uint8Array.from((blue_first ? planes.reverse() : planes).flatMap((plane) => [...sized(plane)]));
  const paper = hand.plane(width, height, grey());
  if (digit) return Uint8Array.from(hand.digit(paper, w, h));
  return Uint8Array.from(sized(paper));
};
