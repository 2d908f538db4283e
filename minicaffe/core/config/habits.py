"""What other frameworks call what is here under Caffe's names: for hints beside a mistake."""

from __future__ import annotations

import re
from collections.abc import Container

NAMES = {  # the name here, and what goes with it: the words of others, as `plain` has them
    "Convolution": "conv",
    "Deconvolution": "convtranspose transposedconv",
    "InnerProduct": "linear dense fc fullyconnected gemm",
    "BatchNorm": "batchnormalization bn",
    "Pooling with pool: MAX": "maxpool maxpooling",
    "Pooling with pool: AVE": "avgpool averagepool averagepooling",
    "Pooling with pool: AVE and global_pooling: true": (
        "globalavgpool globalaveragepool globalaveragepooling adaptiveavgpool"
    ),
    "ReLU with negative_slope": "leakyrelu",
    "ReLU": "relu6",
    "Embed": "embedding",
    "Eltwise": "add",
    "Eltwise with operation: PROD": "mul",
    "SoftmaxWithLoss": "crossentropy crossentropyloss",
    "EuclideanLoss": "mse mseloss",
    "SigmoidCrossEntropyLoss": "bcewithlogitsloss",
    "LRN": "localresponsenorm",
    "Data with source: FOLDER": "imagefolder",
    "num_output": "filters units outchannels outfeatures",
    "kernel_size": "kernel",
    "pad": "padding",
    "eps": "epsilon",
    "dropout_ratio": "p rate",
    "split": "validationsplit",
    "base_lr": "lr learningrate",
    "max_iter (--epochs counts in epochs)": "epochs",
    "max_iter": "iterations steps",
    "type": "optimizer",
    "lr_policy": "scheduler lrscheduler",
    "random_seed": "seed",
    "test_interval": "valinterval evalinterval",
    "momentum": "beta1",
    "momentum2": "beta2",
}


def plain(word: str) -> str:
    """A word without what frameworks write differently.

    >>> plain("MaxPool2d"), plain("out_channels")
    ('maxpool', 'outchannels')
    """
    return re.sub(r"(?<=[a-z])[123]d$", "", re.sub("[-_]", "", word.lower()))


def meant(word: str, known: Container[str]) -> str:
    """A hint that names what a word of other frameworks is here, if that is among the known.

    >>> meant("MaxPool2d", ["Pooling"])
    "; did you mean 'Pooling' with pool: MAX?"
    """
    meaning = next((name for name, words in NAMES.items() if plain(word) in words.split()), "")
    name, blank, more = meaning.partition(" ")
    return f"; did you mean {name!r}{blank}{more}?" if name and name in known else ""
