"use strict";
/* A net out of a page's data: its numbers decoded, its steps run one behind the other. */

/* The numbers of base64, as an array of a type of a machine that counts bytes from the least, as all browsers do. */
hand.decode = (text, type = Float32Array) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new type(bytes.buffer);
};

/* A function of an input, flat (c, h, w), that gives the net's answer, flat.

   `net` is {input, output, steps: [{op, in, out, arrays, ...}], arrays: [base64, ...]}; values have numbers. */
hand.net = (net) => {
  const arrays = net.arrays.map((text) => hand.decode(text));
  return (input) => {
    const values = new Map([[net.input, input]]);
    for (const step of net.steps) {
      const xs = step.in.map((number) => values.get(number));
      const y = hand.layers[step.op](step, xs, step.arrays.map((number) => arrays[number]));
      for (const number of step.out) values.set(number, y);
    }
    return values.get(net.output);
  };
};

/* A picture, uint8 flat (c, h, w), as the data layer gives it to the net: central crop, mean, scale.

   `data` is {crop: [top, left, height, width], mean: flat (c, 1, 1) or as cropped, scale}; a picture of the
   cropped size is not cropped again. */
hand.transformed = (picture, [c, h, w], { crop, mean, scale }) => {
  const [top, left, oh, ow] = crop, y = new Float32Array(c * oh * ow);
  const cropped = picture.length === y.length;
  for (let i = 0, k = 0; i < c; i++) {
    for (let oy = 0; oy < oh; oy++) {
      for (let ox = 0; ox < ow; ox++, k++) {
        const value = cropped ? picture[k] : picture[(i * h + oy + top) * w + ox + left];
        const less = mean.length === y.length ? mean[k] : mean[mean.length === 1 ? 0 : i];
        y[k] = (value - less) * scale;
      }
    }
  }
  return y;
};
