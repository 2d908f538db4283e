"""What the words of Caffe's own command line, and of others, are called here, for hands that type them."""

from __future__ import annotations

COMMANDS = {
    "caffe": "leave it out: minicaffe train, test, time",
    "device_query": "minicaffe doctor",
    "upgrade_net_proto_text": "minicaffe convert OLD.prototxt NEW.prototxt",
    "upgrade_solver_proto_text": "minicaffe convert OLD.prototxt NEW.prototxt",
    "upgrade_net_proto_binary": "not needed: weights of any age are read",
    "classification": "minicaffe predict",
    "convert_imageset": "a few lines of Python, in docs/from-caffe.md",
    "compute_image_mean": "a few lines of Python, in docs/from-caffe.md",
    "extract_features": "a few lines of Python, in docs/from-caffe.md",
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
    "sigint_effect": "not there: Ctrl-C takes a snapshot and stops",
    "sighup_effect": "not there: Ctrl-C takes a snapshot and stops",
}
OTHERS = {  # of other frameworks' commands and scripts
    "lr": "--set solver.base_lr=...",
    "learning-rate": "--set solver.base_lr=...",
    "epochs": "--epochs, of train",
    "batch-size": "--batch-size, of train",
    "batch": "--batch-size, of train",
    "optimizer": "--set solver.type=Adam",
    "momentum": "--set solver.momentum=...",
    "weight-decay": "--set solver.weight_decay=...",
    "wd": "--set solver.weight_decay=...",
    "scheduler": "--set solver.lr_policy=...",
    "steps": "--max-iter, of train",
    "patience": "--set solver.early_stopping=..., beside solver.best",
    "workers": "--set layers.NAME.workers=..., of the data layer",
    "num-workers": "--set layers.NAME.workers=..., of the data layer",
    "val-split": "--set layers.NAME.split=..., of the data layer",
    "validation-split": "--set layers.NAME.split=..., of the data layer",
    "data": "--data, of train and new",
    "data-dir": "--data, of train and new",
    "dataset": "--data, of train and new",
    "output-dir": "--run",
    "save-dir": "--run",
    "logdir": "--run",
    "name": "--run",
    "checkpoint": "--weights, or --resume to go on",
    "ckpt": "--weights, or --resume to go on",
    "pretrained": "--weights",
    "cuda": "--device cuda",
    "cpu": "--device cpu",
    "gpus": "mpiexec -n N minicaffe train ...",
    "amp": "--dtype float16",
    "fp16": "--dtype float16",
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
    table = FLAGS if word.startswith("-") else COMMANDS
    found = table.get(word.lstrip("-").removesuffix(".bin"))
    if found:
        return f"; Caffe's {word} is {found}"
    other = OTHERS.get(word.lstrip("-").replace("_", "-")) if word.startswith("--") else None
    return f"; {word} is {other}" if other else ""
