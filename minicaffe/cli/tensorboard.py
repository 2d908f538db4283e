"""The numbers of a run's log as TensorBoard's event files, by the package tensorboardX."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minicaffe.errors import MinicaffeError, pip_install

SHOWN = ("loss", "lr", "images_per_s", "memory_mib", "gradient_norm", "weight_norm", "epoch")


def library() -> SimpleNamespace:
    """What is needed of tensorboardX. Raises MinicaffeError, which says how to get it."""
    try:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2
    except ImportError as error:
        raise MinicaffeError(
            f"--tensorboard needs the package tensorboardX ({error}): {pip_install('tensorboard')}"
        ) from None
    return SimpleNamespace(EventsWriter=EventsWriter, event_pb2=event_pb2)


class Writer:
    """Writes each line of a log that it is given into an event file in a folder.

    Who goes on at an `iteration` writes a file of his own, which has TensorBoard drop what others hold from
    there on. What cannot be written is told once, and tried again with the next line, in a new file.
    """

    def __init__(self, folder: Path, iteration: int, failed: Callable[[str], None]):
        self.folder, self.tell, self.library = os.path.abspath(folder), failed, library()
        start = self.library.event_pb2.SessionLog(status="START")
        self.waiting = [self._event(iteration, session_log=start)]
        self.file: Any = None
        self.trouble = False

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Write the numbers of a line of the log."""
        for name, value in scalars(line):
            event = self._event(line["iteration"])
            event.summary.value.add(tag=name, simple_value=value)
            self.waiting.append(event)
        try:
            if self.file is None:
                name = os.path.join(self.folder, "events")
                self.file = self.library.EventsWriter(name, f".{time.time_ns()}")
            for event in self.waiting:
                self.file.write_event(event)
            self.file.flush()
        except OSError as error:
            if not self.trouble:
                self.tell(
                    f"{self.folder}: TensorBoard's events cannot be written: {error.strerror}; training"
                    " goes on, and it is tried again with the next line"
                )
            self.close()
            self.trouble = True
        else:
            self.waiting.clear()

    def close(self) -> None:
        """Close the file; what could not be written has been told."""
        if self.file is not None:
            with contextlib.suppress(OSError):  # it would write that now
                self.file.close()
            self.file = None

    def _event(self, iteration: int, **rest: Any) -> Any:
        return self.library.event_pb2.Event(wall_time=time.time(), step=iteration, **rest)


def scalars(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a line of the log, by names such as train/loss and test/accuracy.

    >>> line = {"kind": "train", "iteration": 5, "loss": 0.5, "lr": None, "outputs": {"f1": [0.1, 0.2]}}
    >>> list(scalars(line))
    [('train/loss', 0.5), ('train/f1/0', 0.1), ('train/f1/1', 0.2)]
    """
    kind = line["kind"]
    for name in SHOWN:
        if line.get(name) is not None:
            yield f"{kind}/{name}", line[name]
    for name, value in line.get("outputs", {}).items():
        own = f"{name} (output)" if name in SHOWN else name
        yield from _numbers(f"{kind}/{own}" if kind == "train" else f"{kind}/{name}", value)


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _numbers(f"{name}/{i}", item)
    elif value is not None and math.isfinite(value):
        yield name, value
