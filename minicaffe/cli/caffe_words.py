"""What the words of Caffe's own command line are called here, for hands that still type them."""

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


def hint(word: str) -> str:
    """What a command or flag of Caffe's is called here, as an error ends; nothing for another word.

    >>> hint("device_query")
    "; Caffe's device_query is minicaffe doctor"
    >>> hint("-gpu"), hint("--frobnicate")
    ("; Caffe's -gpu is --device cuda:N", '')
    """
    table = FLAGS if word.startswith("-") else COMMANDS
    found = table.get(word.lstrip("-").removesuffix(".bin"))
    return f"; Caffe's {word} is {found}" if found else ""
