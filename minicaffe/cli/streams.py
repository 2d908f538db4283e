"""Standard output and error, whatever they lead to: nowhere, a full disk, a terminal of few letters."""

from __future__ import annotations

import os
import sys

from minicaffe.errors import printable


def prepare() -> None:
    """Let both take any text: one that is closed leads nowhere, and what an encoding lacks is escaped."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a number that was closed: else the next file opened would get it, and what is printed
    os.close(null)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def say(*lines: object) -> None:
    """Put lines on stdout; what a terminal would act on, in the name of a file or a class, is escaped."""
    print(*map(printable, lines), sep="\n")
