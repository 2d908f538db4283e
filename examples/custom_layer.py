"""A layer of one's own: SiLU, gradient-checked and used from YAML.

    python examples/custom_layer.py
    minicaffe train models/lenet.yaml --import examples/custom_layer.py     (with a layer of type SiLU)

SiLU, built in as Swish, is x * sigmoid(beta * x) (P. Ramachandran et al., Searching for Activation
Functions, 2017).
"""

from typing import Annotated

import numpy as np

import minicaffe


@minicaffe.register
class SiLU(minicaffe.Layer):
    """y = x sigmoid(beta x), element by element. Any shape."""

    beta: Annotated[float, "steepness"] = 1.0

    def setup(self, x):
        return x

    def forward(self, x):
        self.x, self.s = x, 1 / (1 + self.xp.exp(-self.beta * x))
        return x * self.s

    def backward(self, dy):
        return dy * (self.s + self.beta * self.x * self.s * (1 - self.s))


NET = """
name: swish
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [8, 4]}, {dim: [8]}]}
  - {name: hidden, type: InnerProduct, bottom: x, num_output: 16}
  - {name: swish, type: SiLU, beta: 1.5}
  - {name: scores, type: InnerProduct, num_output: 2}
  - {name: loss, type: SoftmaxWithLoss, bottom: [scores, label]}
solver: {base_lr: 0.1, momentum: 0.9, max_iter: 100, snapshot_after_train: false}
"""


def main() -> None:
    print(f"gradient of SiLU: relative error {minicaffe.gradcheck(SiLU(beta=1.5), (3, 4)):.1e}")
    solver = minicaffe.Solver(minicaffe.parse(NET))
    x = np.random.default_rng(0).normal(size=(8, 4))
    blobs = {"x": x, "label": x[:, 0] > 0}
    before = solver.net.forward(**blobs)["loss"].item()
    solver.solve()
    after = solver.net.forward(**blobs)["loss"].item()
    print(f"loss before training {before:.3f}, after {after:.4f}")


if __name__ == "__main__":
    main()
