"""What other frameworks call what is here under Caffe's names: for hints beside a mistake."""

from __future__ import annotations

import re
from collections.abc import Container

NAMES = {  # as `plain` has the word: the name here, and what goes with it
    # types of layers
    "conv": ("Convolution", ""),
    "convtranspose": ("Deconvolution", ""),
    "transposedconv": ("Deconvolution", ""),
    "linear": ("InnerProduct", ""),
    "dense": ("InnerProduct", ""),
    "fc": ("InnerProduct", ""),
    "fullyconnected": ("InnerProduct", ""),
    "gemm": ("InnerProduct", ""),
    "batchnormalization": ("BatchNorm", ""),
    "bn": ("BatchNorm", ""),
    "maxpool": ("Pooling", " with pool: MAX"),
    "maxpooling": ("Pooling", " with pool: MAX"),
    "avgpool": ("Pooling", " with pool: AVE"),
    "averagepool": ("Pooling", " with pool: AVE"),
    "averagepooling": ("Pooling", " with pool: AVE"),
    "globalavgpool": ("Pooling", " with pool: AVE and global_pooling: true"),
    "globalaveragepool": ("Pooling", " with pool: AVE and global_pooling: true"),
    "globalaveragepooling": ("Pooling", " with pool: AVE and global_pooling: true"),
    "adaptiveavgpool": ("Pooling", " with pool: AVE and global_pooling: true"),
    "leakyrelu": ("ReLU", " with negative_slope"),
    "relu6": ("ReLU", ""),
    "embedding": ("Embed", ""),
    "add": ("Eltwise", ""),
    "mul": ("Eltwise", " with operation: PROD"),
    "crossentropy": ("SoftmaxWithLoss", ""),
    "crossentropyloss": ("SoftmaxWithLoss", ""),
    "mse": ("EuclideanLoss", ""),
    "mseloss": ("EuclideanLoss", ""),
    "bcewithlogitsloss": ("SigmoidCrossEntropyLoss", ""),
    "localresponsenorm": ("LRN", ""),
    "imagefolder": ("Data", " with source: FOLDER"),
    # keys of layers
    "filters": ("num_output", ""),
    "units": ("num_output", ""),
    "outchannels": ("num_output", ""),
    "outfeatures": ("num_output", ""),
    "kernel": ("kernel_size", ""),
    "padding": ("pad", ""),
    "epsilon": ("eps", ""),
    "p": ("dropout_ratio", ""),
    "rate": ("dropout_ratio", ""),
    "validationsplit": ("split", ""),
    # keys of the solver
    "lr": ("base_lr", ""),
    "learningrate": ("base_lr", ""),
    "epochs": ("max_iter", " (--epochs counts in epochs)"),
    "iterations": ("max_iter", ""),
    "steps": ("max_iter", ""),
    "optimizer": ("type", ""),
    "scheduler": ("lr_policy", ""),
    "lrscheduler": ("lr_policy", ""),
    "seed": ("random_seed", ""),
    "valinterval": ("test_interval", ""),
    "evalinterval": ("test_interval", ""),
    "beta1": ("momentum", ""),
    "beta2": ("momentum2", ""),
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
    name, more = NAMES.get(plain(word), ("", ""))
    return f"; did you mean {name!r}{more}?" if name and name in known else ""
