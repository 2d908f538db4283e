"""Classify pictures: the most probable classes of each, with probabilities.

Pictures are scaled to the net's size; a grey one with a light border is inverted, since MNIST's
digits are white on black. For a net of MNIST, in a picture of another size than the net's, the digit
is looked for: a photograph of a sheet will do, with shadows, lines, any ink on any paper. It is
prepared as MNIST was: cropped, scaled, centred. `[unsure: ...]` behind the classes says why an
answer may be wrong. PGM, PPM and .npy of the net's size need nothing more, PNG and JPEG the extra
image. A snapshot holds its net's text: where it is MODEL, no model file is needed.

example:
  minicaffe predict lenet_iter_10000.npz digit.png
  minicaffe predict lenet digit.png --weights lenet_iter_10000.caffemodel
"""

from __future__ import annotations

import argparse

import numpy as np

from minicaffe.cli.options import (
    device_option,
    dtype_option,
    model_options,
    number,
    pick_device,
    read_model,
    tell,
)
from minicaffe.cli.weights import load_weights, weights_of, weights_option
from minicaffe.deploy import Classifier, takes_digits
from minicaffe.pictures import Doubt, read_picture


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    parser.add_argument(
        "images", metavar="IMAGE", nargs="+", help="a picture: PNG, JPEG, PGM, PPM, .npy"
    )
    weights_option(parser)
    device_option(parser)
    dtype_option(parser)
    parser.add_argument(
        "--top", metavar="N", type=number(1), default=3, help="classes shown; default: 3"
    )


def run(args: argparse.Namespace) -> int:
    """Classify."""
    weights, spec = weights_of(args), read_model(args)
    device = pick_device(args, spec)
    classifier = Classifier(spec, device=device, dtype=args.dtype)
    for file, _ in load_weights(classifier.net, weights):
        if file != weights:  # of a run
            tell(args, f"weights: {file}")
    digit = takes_digits(classifier.data)
    pictures = [read_picture(path, classifier.image_shape, digit) for path in args.images]
    for path, (pixels, notes) in zip(args.images, pictures, strict=True):
        if classifier.data.blue_first:
            pixels = pixels[::-1]
        prob = classifier.predict(pixels).ravel()
        best = np.argsort(-prob)[: args.top]
        guesses = ", ".join(f"{k} ({100 * prob[k]:.2f} %)" for k in best)
        if prob[best[0]] < 0.5:
            notes.append(Doubt("no class has half of the probability"))
        print(f"{path}: {guesses}{_told(notes)}")
    return 0


def _told(notes: list[str]) -> str:
    """What was done and what is in doubt, each in brackets.

    >>> _told(["inverted", Doubt("faint ink")])
    ' [inverted] [unsure: faint ink]'
    """
    doubts = [note for note in notes if isinstance(note, Doubt)]
    done = [note for note in notes if not isinstance(note, Doubt)]
    text = f" [{', '.join(done)}]" if done else ""
    return text + (f" [unsure: {', '.join(doubts)}]" if doubts else "")
