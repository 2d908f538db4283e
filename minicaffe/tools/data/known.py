"""The data sets known by name: where they are published, and what their files must be."""

from __future__ import annotations

from dataclasses import dataclass

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True)
class Published:
    """One published file: of its .gz the size and SHA-256, of the array the shape and raw MD5."""

    size: int
    sha256: str
    shape: tuple[int, ...]
    raw_md5: str


@dataclass(frozen=True)
class Known:
    """A data set known by name."""

    mirrors: tuple[str, ...]
    files: dict[str, Published]


@dataclass(frozen=True)
class Archive:
    """A data set published as one .tar.gz: its size and digests, and the sizes of the files in it."""

    mirrors: tuple[str, ...]
    file: str
    size: int
    sha256: str
    md5: str
    folder: str  # that the files lie in
    members: dict[str, int]


_SHAPES = ((60000, 28, 28), (60000,), (10000, 28, 28), (10000,))


def _known(mirrors: tuple[str, ...], sizes: tuple[int, ...], sha256: str, raw_md5: str) -> Known:
    rows = zip(sizes, sha256.split(), _SHAPES, raw_md5.split(), strict=True)
    return Known(mirrors, {name: Published(*row) for name, row in zip(FILES, rows, strict=True)})


# Each in the order of FILES. Sizes and SHA-256 of the .gz files are those of TensorFlow Datasets
# (url_checksums/mnist.txt and fashion_mnist.txt), and torchvision's prototype data sets agree. The
# raw MD5 were computed from MNIST, and for Fashion-MNIST are those that several projects list.
KNOWN = {
    "mnist": _known(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        (9912422, 28881, 1648877, 4542),
        """
        440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
        3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
        8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
        f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
        """,
        """
        6bbc9ace898e44ae57da46a324031adb
        a25bea736e30d166cdddb491f175f624
        2646ac647ad5339dbf082846283269ea
        27ae3e4e09519cfbb04c329615203637
        """,
    ),
    "fashion-mnist": _known(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (26421880, 29515, 4422102, 5148),
        """
        3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
        a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
        346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
        67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
        """,
        """
        f4a8712d7a061bf5bd6d2ca38dc4d50a
        9018921c3c673c538a1fc5bad174d6f9
        8181f5470baa50b63fa0f6fddb340f0a
        15d484375f8d13e6eb1aabb0c3f46965
        """,
    ),
}

CIFAR10 = "cifar10"
# The MD5 is that of the data set's own page, size and SHA-256 are those of TensorFlow Datasets.
ARCHIVES = {
    CIFAR10: Archive(
        ("https://www.cs.toronto.edu/~kriz/",),
        "cifar-10-binary.tar.gz",
        170052171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-batches-bin",
        {
            "batches.meta.txt": 61,
            **{f"data_batch_{i}.bin": 30730000 for i in range(1, 6)},
            "test_batch.bin": 30730000,
        },
    )
}
NAMES = (*KNOWN, *ARCHIVES)  # of those that can be fetched
ABOUT = {  # content and licence: as Keras says of MNIST, and as the data set's own page says of the others
    "mnist": ("70,000 digits, 28 x 28", "CC BY-SA 3.0"),
    "fashion-mnist": ("70,000 articles of clothing, 28 x 28", "MIT"),
    CIFAR10: ("60,000 pictures of 10 classes, 3 x 32 x 32", "none stated"),
}
