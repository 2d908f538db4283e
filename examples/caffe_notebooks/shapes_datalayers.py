"""The data layer of pascal_multilabel.py: pictures, and all of the classes that are in each."""

import ast
import os.path as osp
from random import Random
from xml.dom import minidom

import numpy as np
from PIL import Image
from voc_tools import SimpleTransformer

import caffe


class ShapesMultilabelDataLayerSync(caffe.Layer):
    """Reads a batch where it is asked for one."""

    def setup(self, bottom, top):
        self.top_names = ["data", "label"]
        params = ast.literal_eval(self.param_str)
        for required in ("batch_size", "voc_root", "im_shape", "split"):
            assert required in params, "Params must include {}".format(required)
        self.batch_size = params["batch_size"]
        self.batch_loader = BatchLoader(params)
        top[0].reshape(self.batch_size, 3, params["im_shape"][0], params["im_shape"][1])
        top[1].reshape(self.batch_size, 5)
        print(
            "{} initialized for split: {}, with bs: {}, im_shape: {}.".format(
                type(self).__name__, params["split"], params["batch_size"], params["im_shape"]
            )
        )

    def forward(self, bottom, top):
        for itt in range(self.batch_size):
            im, multilabel = self.batch_loader.load_next_image()
            top[0].data[itt, ...] = im
            top[1].data[itt, ...] = multilabel

    def reshape(self, bottom, top):
        """The size stays."""

    def backward(self, top, propagate_down, bottom):
        """Data have no gradient."""


class BatchLoader(object):
    def __init__(self, params):
        self.root, self.im_shape = params["voc_root"], params["im_shape"]
        with open(osp.join(self.root, "ImageSets/Main", params["split"] + ".txt")) as f:
            self.indexlist = [line.rstrip("\n") for line in f]
        self.random = Random(0)
        self.cur = 0
        self.transformer = SimpleTransformer()

    def load_next_image(self):
        if self.cur == len(self.indexlist):  # an epoch is over
            self.cur = 0
            self.random.shuffle(self.indexlist)
        index = self.indexlist[self.cur]
        self.cur += 1
        with Image.open(osp.join(self.root, "JPEGImages", index + ".png")) as opened:
            im = np.asarray(opened.convert("RGB").resize(self.im_shape[::-1]))
        im = im[:, :: self.random.choice((-1, 1)), :]
        multilabel = np.zeros(5, np.float32)
        for label in load_annotation(index, self.root):
            multilabel[label - 1] = 1  # 0 is the background
        return self.transformer.preprocess(im), multilabel


def load_annotation(index, root):
    """The classes in a picture, from 1."""
    data = minidom.parse(osp.join(root, "Annotations", index + ".xml"))
    found = [
        o.getElementsByTagName("name")[0].childNodes[0].data
        for o in data.getElementsByTagName("object")
    ]
    return [("red", "green", "blue", "yellow", "white").index(name) + 1 for name in found]
