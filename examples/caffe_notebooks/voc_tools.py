"""What pascal_multilabel.py and its data layer both need."""

import numpy as np


class SimpleTransformer:
    """From a picture to what the net reads, and back."""

    def __init__(self, mean=(128, 128, 128), scale=1.0 / 128):
        self.mean = np.array(mean, dtype=np.float32)
        self.scale = scale

    def preprocess(self, im):
        im = np.float32(im)[:, :, ::-1]  # blue first
        return ((im - self.mean) * self.scale).transpose((2, 0, 1))

    def deprocess(self, im):
        im = im.transpose(1, 2, 0) / self.scale + self.mean
        return np.uint8(np.round(im[:, :, ::-1]))


class CaffeSolver:
    """A solver's prototxt, key by key, each value as it stands in the text."""

    def __init__(
        self, trainnet_prototxt_path="trainnet.prototxt", testnet_prototxt_path="testnet.prototxt"
    ):
        self.sp = {}
        self.sp["base_lr"] = "0.001"
        self.sp["momentum"] = "0.9"
        self.sp["test_iter"] = "100"
        self.sp["test_interval"] = "250"
        self.sp["display"] = "25"
        self.sp["snapshot"] = "2500"
        self.sp["snapshot_prefix"] = '"snapshot"'
        self.sp["lr_policy"] = '"fixed"'
        self.sp["gamma"] = "0.1"
        self.sp["weight_decay"] = "0.0005"
        self.sp["train_net"] = '"' + trainnet_prototxt_path + '"'
        self.sp["test_net"] = '"' + testnet_prototxt_path + '"'
        self.sp["max_iter"] = "100000"
        self.sp["test_initialization"] = "false"
        self.sp["average_loss"] = "25"
        self.sp["iter_size"] = "1"

    def write(self, filepath):
        with open(filepath, "w") as f:
            for key, value in sorted(self.sp.items()):
                if not isinstance(value, str):
                    raise TypeError("All solver parameters must be strings")
                f.write("%s: %s\n" % (key, value))
