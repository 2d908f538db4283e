"""Fetching weights by name: a file is installed once it has the digest that was published of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minicaffe.errors import DataError, did_you_mean, note
from minicaffe.tools.data.fetch import OFFLINE, data_folder, download, installing, matches, offline

Kind = Literal["sha1", "git_blob"]


@dataclass(frozen=True)
class Row:
    """A published weight file, `folder`NAME.caffemodel.

    `digest` is its SHA-1, or its name as git's blob. `model` is the model of the zoo that it fits, `licence`
    and `accuracy` are what the authors say of it on the page `source`. Where the digest is not from that page,
    `digest_source` says whose it is.
    """

    folder: str
    digest: str
    licence: str
    accuracy: str
    source: str
    model: str | None = None
    kind: Kind = "sha1"
    digest_source: str = ""

    def address(self, name: str) -> str:
        """Where the file is published."""
        return f"{self.folder}{name}.caffemodel"


_BVLC = "http://dl.caffe.berkeleyvision.org/"
_BVLC_PAGE = "https://github.com/BVLC/caffe/tree/master/models/"
_SQUEEZENET = "forresti/SqueezeNet"
_SQUEEZENET_AT = "51147dc0681638c28aad593b9e923f3500117125"
_MOBILENET = "shicai/MobileNet-Caffe"
_MOBILENET_AT = "a0b0c46152e658559956158d7c2bf42bb029c09e"
_VGG = "http://www.robots.ox.ac.uk/~vgg/software/very_deep/caffe/"
_GIST = "https://gist.github.com/ksimonyan/"
_RAW, _GITHUB = "https://raw.githubusercontent.com", "https://github.com"
_CENTRE, _FREE = "of the validation set, centre crop", "unrestricted use"


def _bvlc(
    page: str, digest: str, score: str, model: str | None = None, licence: str = _FREE
) -> Row:
    return Row(_BVLC, digest, licence, score, f"{_BVLC_PAGE}{page}", model)


WEIGHTS = {
    "bvlc_alexnet": _bvlc(
        "bvlc_alexnet",
        "9116a64c0fbe4459d18f4bb6b56d647b63920377",
        f"top-1 57.1 %, top-5 80.2 % {_CENTRE}",
        "alexnet",
    ),
    "bvlc_reference_caffenet": _bvlc(
        "bvlc_reference_caffenet",
        "4c8d77deb20ea792f84eb5e6d0a11ca0a8660a46",
        f"top-1 57.4 %, top-5 80.4 % {_CENTRE}",
        "caffenet",
    ),
    "bvlc_googlenet": _bvlc(
        "bvlc_googlenet",
        "405fc5acd08a3bb12de8ee5e23a96bec22f08204",
        f"top-1 68.7 %, top-5 88.9 % {_CENTRE}",
        "googlenet",
    ),
    "squeezenet_v1.1": Row(
        f"{_RAW}/{_SQUEEZENET}/{_SQUEEZENET_AT}/SqueezeNet_v1.1/",
        "9d2fc33abf653a6e8b2ee6cc63ede0e72ec67f44",
        "BSD",
        "top-5 80.3 % or more",
        f"{_GITHUB}/{_SQUEEZENET}/tree/{_SQUEEZENET_AT}/SqueezeNet_v1.1",
        model="squeezenet",
        kind="git_blob",
    ),
    "squeezenet_v1.0": Row(
        f"{_RAW}/{_SQUEEZENET}/{_SQUEEZENET_AT}/SqueezeNet_v1.0/",
        "a381d848b43d7048c3b362238ece2386c21d6ff0",
        "BSD",
        "top-5 80.3 % or more",
        f"{_GITHUB}/{_SQUEEZENET}/tree/{_SQUEEZENET_AT}/SqueezeNet_v1.1",
        kind="git_blob",
    ),
    "mobilenet": Row(
        f"{_RAW}/{_MOBILENET}/{_MOBILENET_AT}/",
        "132e56b5f14874090622a8287f208e5eac3d8440",
        "BSD 3-clause",
        f"top-1 70.81 %, top-5 89.85 % {_CENTRE}",
        f"{_GITHUB}/{_MOBILENET}/tree/{_MOBILENET_AT}",
        model="mobilenet",
        kind="git_blob",
    ),
    "mobilenet_v2": Row(
        f"{_RAW}/{_MOBILENET}/{_MOBILENET_AT}/",
        "901c2b5515da944d152e1aa0c3e71108eb227576",
        "BSD 3-clause",
        f"top-1 71.90 %, top-5 90.49 % {_CENTRE}",
        f"{_GITHUB}/{_MOBILENET}/tree/{_MOBILENET_AT}",
        kind="git_blob",
    ),
    "VGG_ILSVRC_16_layers": Row(
        _VGG,
        "9363e1f6d65f7dba68c4f27a1e62105cdf6c4e24",
        "CC BY 4.0",
        "top-5 91.9 % of the validation set, dense, at 384 pixels",
        f"{_GIST}211839e770f7b538e2d8",
        model="vgg16",
        digest_source="OpenCV, MXNet and others, who agree",
    ),
    "VGG_ILSVRC_19_layers": Row(
        _VGG,
        "239785e7862442717d831f682bb824055e51e9ba",
        "CC BY 4.0",
        "top-5 92.0 % of the validation set, dense, at 384 pixels",
        f"{_GIST}3785162f95cd2d5fee77",
        digest_source="MXNet and others, who agree",
    ),
    "fcn8s-heavy-pascal": Row(
        _BVLC,
        "c449ea74dd7d83751d1357d6a8c323fcf4038962",
        _FREE,
        "mean IU 65.5 % of seg11valid, 67.2 % of seg12test",
        f"{_GITHUB}/shelhamer/fcn.berkeleyvision.org",
        model="fcn8s",
        digest_source="OpenCV and mexopencv, who agree",
    ),
    "bvlc_reference_rcnn_ilsvrc13": _bvlc(
        "bvlc_reference_rcnn_ilsvrc13", "bdd8abb885819cba5e2fe1eb36235f2319477e64", "none published"
    ),
    "finetune_flickr_style": _bvlc(
        "finetune_flickr_style",
        "b61b5cef7d771b53b0c488e78d35ccadc073e9cf",
        "39.16 % of 20 styles",
        licence="non-commercial",
    ),
}
NAMES = tuple(dict.fromkeys([*WEIGHTS, *(row.model for row in WEIGHTS.values() if row.model)]))


def lookup(name: str) -> tuple[str, Row] | None:
    """The weights that a name means, their own or that of the zoo's model they fit; None for any other.

    >>> lookup("alexnet")[0]
    'bvlc_alexnet'
    >>> lookup("lenet") is None
    True
    """
    for own, row in WEIGHTS.items():
        if name in (own, row.model):
            return own, row
    return None


FOLDER = "weights"  # in the folder of data sets


def weights_named(name: str, folder: Path | None = None) -> Path | None:
    """The file of the weights of that name, fetched if it is not there; None if there is no such name.

    `name` is that of the weights or of the zoo's model that they fit, `folder` that of the data sets, by
    default `data_folder()`. A file that is there is taken as it is. Raises DataError if there is none and
    MINICAFFE_OFFLINE is set, and as `fetch_weights` does.

    >>> weights_named("lenet") is None
    True
    """
    weights = lookup(name)
    if weights is None:
        return None
    own, row = weights
    path = _place(own, folder)
    if path.is_file():
        return path
    if offline():
        raise DataError(
            f"the weights {own} are not in {path.parent}, and {OFFLINE}; with a network: minicaffe fetch {own}"
        )
    note(f"minicaffe: fetching {row.address(own)} into {path.parent}")
    return fetch_weights(own, folder)


def fetch_weights(
    name: str,
    folder: Path | None = None,
    mirrors: Sequence[str] | None = None,
    progress: bool = True,
) -> Path:
    """Bring the weights `name` into `folder`/weights, verified, and return the file's path.

    A right file that is there is kept, a wrong one is replaced. `mirrors` replaces the published address,
    `progress` shows a bar on a terminal. Raises DataError for an unknown name, a folder that cannot be
    written, and when no mirror has the right bytes; then nothing is installed.
    """
    weights = lookup(name)
    if weights is None:
        raise DataError(f"there are no weights {name!r}{did_you_mean(name, NAMES)}")
    own, row = weights
    path = _place(own, folder)
    digests: dict[str, str] = {row.kind: row.digest}
    with installing(own, path.parent) as beside:
        if not path.exists() or not matches(path, digests):
            addresses = [row.folder] if mirrors is None else list(mirrors)
            download(own, beside / path.name, None, digests, addresses, progress)
    return path


def _place(name: str, folder: Path | None) -> Path:
    return Path(data_folder() if folder is None else folder) / FOLDER / f"{name}.caffemodel"
