"""What the words of Caffe's own command line, and of others, are called here, for hands that type them."""

from __future__ import annotations

from collections.abc import Mapping

# Each text by the words, with blanks between, that it is of
COMMANDS = {
    "caffe": "leave it out: minicaffe train, test, time",
    "device_query": "minicaffe doctor",
    "upgrade_net_proto_text upgrade_solver_proto_text": "minicaffe convert OLD.prototxt NEW.prototxt",
    "upgrade_net_proto_binary": "not needed: weights of any age are read",
    "classification": "minicaffe predict",
    "convert_imageset compute_image_mean extract_features": "a few lines of Python, in docs/from-caffe.md",
}
FLAGS = {
    "solver": "the first word, without a flag: minicaffe train solver.prototxt",
    "model": "the first word, without a flag: minicaffe test net.prototxt",
    "weights": "--weights",
    "snapshot": "--resume",
    "gpu": "--device cuda:N",
    "iterations": "--batches in test, --iterations in time, --max-iter in train",
    "phase": "--phase in time",
    "level": "--level",
    "stage": "--stage",
    "sigint_effect sighup_effect": "not there: Ctrl-C takes a snapshot and stops",
}
OTHERS = {  # of other frameworks' commands and scripts
    "lr learning-rate": "--set solver.base_lr=...",
    "epochs": "--epochs, of train",
    "batch-size batch": "--batch-size, of train",
    "optimizer": "--set solver.type=Adam",
    "momentum": "--set solver.momentum=...",
    "weight-decay wd": "--set solver.weight_decay=...",
    "scheduler": "--set solver.lr_policy=...",
    "steps": "--max-iter, of train",
    "patience": "--set solver.early_stopping=..., beside solver.best",
    "workers num-workers": "--set layers.NAME.workers=..., of the data layer",
    "val-split validation-split": "--set layers.NAME.split=..., of the data layer",
    "data data-dir dataset": "--data, of train and new",
    "output-dir save-dir logdir name": "--run",
    "checkpoint ckpt": "--weights, or --resume to go on",
    "pretrained": "--weights",
    "cuda": "--device cuda",
    "cpu": "--device cpu",
    "gpus": "mpiexec -n N minicaffe train ...",
    "amp fp16": "--dtype float16",
    "bf16": "--dtype bfloat16",
    "verbose": "not needed: all is said unless --quiet is given",
}


def hint(word: str) -> str:
    """What a command or flag of Caffe's, or of others, is called here, as an error ends; else nothing.

    >>> hint("device_query")
    "; Caffe's device_query is minicaffe doctor"
    >>> hint("-gpu"), hint("--frobnicate")
    ("; Caffe's -gpu is --device cuda:N", '')
    >>> hint("--lr")
    '; --lr is --set solver.base_lr=...'
    """
    bare = word.lstrip("-")
    if text := _of(FLAGS if word.startswith("-") else COMMANDS, bare.removesuffix(".bin")):
        return f"; Caffe's {word} is {text}"
    text = _of(OTHERS, bare.replace("_", "-")) if word.startswith("--") else ""
    return f"; {word} is {text}" if text else ""


def _of(table: Mapping[str, str], word: str) -> str:
    """Returns what a table says of a word; "" if nothing."""
    return next((text for words, text in table.items() if word in words.split()), "")
