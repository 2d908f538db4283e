"""Fetching weights by name: a file is installed once it has the digest that was published of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minicaffe.errors import DataError, note
from minicaffe.tools.data.download import download, matches
from minicaffe.tools.data.fetch import OFFLINE, data_folder, installing, offline
from minicaffe.tools.data.weight_table import lookup, nearest

FOLDER = "weights"  # in the folder of data sets


def weights_named(name: str, folder: Path | None = None) -> Path | None:
    """The file of the weights of that name, fetched if it is not there; None if there is no such name.

    `name` is that of the weights or of the zoo's model that they fit, `folder` that of the data sets, by
    default `data_folder()`. A file that is there is taken as it is. Raises DataError if there is none and
    MINICAFFE_OFFLINE is set, and as `fetch_weights` does.

    >>> weights_named("lenet") is None
    True
    """
    found = lookup(name)
    if found is None:
        return None
    own, row = found
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
    found = lookup(name)
    if found is None:
        raise DataError(f"there are no weights {name!r}{nearest(name)}")
    own, row = found
    path = _place(own, folder)
    digests: dict[str, str] = {row.kind: row.digest}
    with installing(own, path.parent) as beside:
        if not path.exists() or not matches(path, digests):
            addresses = [row.folder] if mirrors is None else list(mirrors)
            download(own, beside / path.name, None, digests, addresses, progress)
    return path


def _place(name: str, folder: Path | None) -> Path:
    return Path(data_folder() if folder is None else folder) / FOLDER / f"{name}.caffemodel"
