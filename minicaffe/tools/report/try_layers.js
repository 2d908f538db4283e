"use strict";
/* The layers of a net that infers, for one sample, in plain loops.

   Each is hand.layers[op](step, xs, arrays): a step of the program says sizes and keys, xs are its bottoms and
   arrays its parameters, all flat; it gives the flat top. Sums are of 64 bits. */
const hand = { layers: {} };

/* The places o of a window's element at `shift` that see the image: o stride + shift lies in 0 ... size - 1. */
hand.seen = (shift, stride, size, count) => [
  Math.max(0, Math.ceil(-shift / stride)),
  Math.min(count - 1, Math.floor((size - 1 - shift) / stride)),
];

/* y[o] = bias[o] + sum over the group's channels and the kernel of weight x */
hand.layers.Convolution = (s, [x], [weight, bias]) => {
  const [c, h, w] = s.x, [oc, oh, ow] = s.y, [kh, kw] = s.kernel;
  const [sh, sw] = s.stride, [ph, pw] = s.pad, [dh, dw] = s.dilation;
  const within = c / s.group, apart = oc / s.group;
  const y = new Float32Array(oc * oh * ow), sum = new Float64Array(oh * ow);
  for (let o = 0, k = 0; o < oc; o++) {
    sum.fill(bias ? bias[o] : 0);
    for (let i = 0; i < within; i++) {
      const image = (Math.floor(o / apart) * within + i) * h * w;
      for (let ky = 0; ky < kh; ky++) {
        const [top, bottom] = hand.seen(ky * dh - ph, sh, h, oh);
        for (let kx = 0; kx < kw; kx++, k++) {
          const v = weight[k], shift = kx * dw - pw;
          const [left, right] = hand.seen(shift, sw, w, ow);
          for (let oy = top; oy <= bottom; oy++) {
            const row = image + (oy * sh + ky * dh - ph) * w + shift;
            for (let ox = left; ox <= right; ox++) sum[oy * ow + ox] += v * x[row + ox * sw];
          }
        }
      }
    }
    y.set(sum, o * oh * ow);
  }
  return y;
};

/* The largest or the mean of each window. Padding never wins; in a mean its zeros count, as in Caffe. */
hand.layers.Pooling = (s, [x]) => {
  const [c, h, w] = s.x, [, oh, ow] = s.y, [kh, kw] = s.kernel, [sh, sw] = s.stride, [ph, pw] = s.pad;
  const y = new Float32Array(c * oh * ow);
  for (let i = 0, k = 0; i < c; i++) {
    for (let oy = 0; oy < oh; oy++) {
      const top = oy * sh - ph, bottom = Math.min(top + kh, h + ph);
      for (let ox = 0; ox < ow; ox++, k++) {
        const left = ox * sw - pw, right = Math.min(left + kw, w + pw);
        let most = -Infinity, sum = 0;
        for (let iy = Math.max(top, 0); iy < Math.min(bottom, h); iy++) {
          for (let ix = Math.max(left, 0); ix < Math.min(right, w); ix++) {
            const v = x[(i * h + iy) * w + ix];
            sum += v;
            if (v > most) most = v;
          }
        }
        if (s.max) y[k] = most === -Infinity ? 0 : most;
        else y[k] = bottom > top && right > left ? sum / ((bottom - top) * (right - left)) : 0;
      }
    }
  }
  return y;
};

/* y = x weight' + bias: m rows of k numbers; the weight is (n, k), or (k, n) if it is transposed */
hand.layers.InnerProduct = (s, [x], [weight, bias]) => {
  const { m, k, n } = s, [down, right] = s.transpose ? [1, n] : [k, 1];
  const y = new Float32Array(m * n);
  for (let i = 0; i < m; i++) {
    for (let o = 0; o < n; o++) {
      let sum = bias ? bias[o] : 0;
      for (let j = 0; j < k; j++) sum += x[i * k + j] * weight[o * down + j * right];
      y[i * n + o] = sum;
    }
  }
  return y;
};

/* y = a x + b with numbers of their own for each channel: Scale, Bias, and BatchNorm by what it has seen */
hand.layers.Channels = (s, [x], [a, b]) => {
  const [, f, p] = s.nfp;
  return x.map((v, i) => {
    const channel = Math.floor(i / p) % f;
    return a[channel] * v + b[channel];
  });
};

hand.layers.PReLU = (s, [x], [slope]) => {
  const [, f, p] = s.nfp;
  return x.map((v, i) => (v > 0 ? v : v * slope[Math.floor(i / p) % f]));
};

/* Functions of each number; `a`, `b` and `c` are what its keys come down to. */
hand.formulas = {
  AbsVal: (x) => Math.abs(x),
  BNLL: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
  Clip: (x, low, high) => Math.min(Math.max(x, low), high),
  Constant: (x, a) => a,
  ELU: (x, a) => (x > 0 ? x : a * Math.expm1(x)),
  Exp: (x, inner, outer) => outer * Math.exp(inner * x),
  GELUTanh: (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  HardSwish: (x) => (x * Math.min(Math.max(x + 3, 0), 6)) / 6,
  LeakyReLU: (x, slope) => (x > 0 ? x : slope * x),
  Linear: (x, a, b) => a * x + b,
  Log: (x, a, b, c) => c * Math.log(a * x + b),
  Power: (x, a, b, c) => (a * x + b) ** c,
  ReLU: (x) => Math.max(x, 0),
  ReLU6: (x) => Math.min(Math.max(x, 0), 6),
  Sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  Square: (x, a, b) => (a * x + b) ** 2,
  Swish: (x, beta) => x / (1 + Math.exp(-beta * x)),
  TanH: (x) => Math.tanh(x),
  Threshold: (x, a) => (x > a ? 1 : 0),
};
hand.layers.Elementwise = (s, [x]) => {
  const formula = hand.formulas[s.formula];
  return x.map((v) => formula(v, ...s.numbers));
};

hand.layers.Softmax = (s, [x]) => {
  const [n, c, p] = s.ncs, y = new Float32Array(x.length);
  for (let i = 0; i < n * p; i++) {
    const first = Math.floor(i / p) * c * p + (i % p);
    let most = -Infinity, sum = 0;
    for (let j = 0; j < c; j++) most = Math.max(most, x[first + j * p]);
    for (let j = 0; j < c; j++) sum += Math.exp(x[first + j * p] - most);
    for (let j = 0; j < c; j++) y[first + j * p] = Math.exp(x[first + j * p] - most) / sum;
  }
  return y;
};

/* y = x (base + alpha sum of x^2 over a window)^-beta of an image (m, h, w), `up` rows to either end, `side` columns */
hand.layers.LRN = (s, [x]) => {
  const [m, h, w] = s.image, y = new Float32Array(x.length);
  for (let i = 0, k = 0; i < m; i++) {
    for (let r = 0; r < h; r++) {
      for (let q = 0; q < w; q++, k++) {
        let sum = 0;
        for (let a = Math.max(0, r - s.up); a <= Math.min(h - 1, r + s.up); a++) {
          for (let b = Math.max(0, q - s.side); b <= Math.min(w - 1, q + s.side); b++) sum += x[(i * h + a) * w + b] ** 2;
        }
        y[k] = x[k] * (s.base + s.alpha * sum) ** -s.beta;
      }
    }
  }
  return y;
};

hand.layers.Eltwise = (s, xs) => xs[0].map((_, i) => {
  if (s.operation === "SUM") return xs.reduce((sum, x, j) => sum + s.factors[j] * x[i], 0);
  if (s.operation === "PROD") return xs.reduce((product, x) => product * x[i], 1);
  return Math.max(...xs.map((x) => x[i]));
});

/* The bottoms one behind the other: `rows` of each, one of each bottom in turn */
hand.layers.Concat = (s, xs) => {
  const y = new Float32Array(xs.reduce((sum, x) => sum + x.length, 0));
  for (let row = 0, at = 0; row < s.rows; row++) {
    for (const x of xs) {
      const size = x.length / s.rows;
      y.set(x.subarray(row * size, (row + 1) * size), at);
      at += size;
    }
  }
  return y;
};

hand.layers.Same = (s, [x]) => x;
