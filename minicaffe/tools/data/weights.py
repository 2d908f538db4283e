"""Fetching weights by name: a file is installed once it has the digest that was published of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minicaffe.errors import DataError, did_you_mean, note
from minicaffe.tools.data import fetch

Kind = Literal["sha1", "git_blob"]


@dataclass(frozen=True)
class Published:
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


WEIGHTS = {name: Published(**row) for name, row in fetch.PUBLISHED["weights"].items()}
NAMES = tuple(dict.fromkeys([*WEIGHTS, *(row.model for row in WEIGHTS.values() if row.model)]))


def lookup(name: str) -> tuple[str, Published] | None:
    """The weights that a name means, their own or that of the zoo's model they fit; None for any other.

    >>> lookup("alexnet")[0]
    'bvlc_alexnet'
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
    """
    weights = lookup(name)
    if weights is None:
        return None
    own, row = weights
    path = _place(own, folder)
    if path.is_file():
        return path
    if fetch.offline():
        raise DataError(
            f"the weights {own} are not in {path.parent}, and {fetch.OFFLINE}; with a network: minicaffe fetch"
            f" {own}"
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
    with fetch.installing(own, path.parent) as beside:
        if not path.exists() or not fetch.matches(path, digests):
            addresses = [row.folder] if mirrors is None else list(mirrors)
            fetch.download(own, beside / path.name, None, digests, addresses, progress)
    return path


def _place(name: str, folder: Path | None) -> Path:
    return Path(fetch.data_folder() if folder is None else folder) / FOLDER / f"{name}.caffemodel"
