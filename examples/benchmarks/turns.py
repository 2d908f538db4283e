"""Processes of a script of this folder: one that answers once, or several that take turns.

A script whose process is started so finds its settings by `asked()`, and answers with `say`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from machine import free_environment

HERE = Path(__file__).resolve().parent
ASKED = "--asked"  # the word behind which a script is given its settings
FORMS = {
    "numba": "minicaffe[cpu] (Numba)",
    "numpy": "minicaffe, plain NumPy",
    "cuda": "minicaffe, CUDA",
}


class Process:
    """A process of a script, with one BLAS thread in each thread, and of a checkout of minicaffe."""

    def __init__(self, script: str, settings: Mapping[str, object], root: Path | None = None):
        command = [sys.executable, str(HERE / script), ASKED, json.dumps(settings)]
        environment = free_environment() | {"OPENBLAS_NUM_THREADS": "1"}
        if "threads" in settings:
            environment["MINICAFFE_NUM_THREADS"] = str(settings["threads"])
        if root is not None:
            environment |= of_checkout(root)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True
        )

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def answers(self) -> Iterator[Any]:
        """What it says, as it says it. Raises CalledProcessError where it fails."""
        for line in self.process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        if self.process.wait() != 0:
            raise subprocess.CalledProcessError(self.process.returncode, self.process.args)

    def ask(self) -> Any:
        """Have it work; returns its answer. Ends this process where that one has ended."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        """What it says next."""
        answer = next(self.answers(), None)
        if answer is None:
            raise SystemExit(f"{' '.join(map(str, self.process.args))} has ended")
        return answer


def answers(script: str, settings: Mapping[str, object]) -> Iterator[Any]:
    """What a process of a script says, as it says it."""
    with Process(script, settings) as process:
        yield from process.answers()


def child(script: str, settings: Mapping[str, object]) -> Any:
    """The last answer of a process of a script."""
    return list(answers(script, settings))[-1]


def asked() -> dict | None:
    """The settings of this process, if a script has started it; its form of minicaffe's CPU ops is set up.

    Plain NumPy is what an installation without the extra `cpu` gives: no Numba.
    """
    if sys.argv[1:2] != [ASKED]:
        return None
    settings = json.loads(sys.argv[2])
    if settings.get("form") == "numpy":
        os.environ["MINICAFFE_NUMBA"] = "0"
        sys.modules["numba"] = None
    return settings


def say(answer: object) -> None:
    """Answer the process that has started this one."""
    print(json.dumps(answer), flush=True)


def one_line(error: Exception) -> str:
    """What an error says, for a table.

    >>> one_line(ValueError("a\\n  b"))
    'ValueError: a b'
    """
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def of_checkout(root: Path) -> dict[str, str]:
    """Variables by which `import minicaffe` takes a checkout's, with plans and bytecode of its own."""
    home = f"{os.environ['MINICAFFE_CACHE']}/before"
    own = {"PYTHONPATH": str(root), "MINICAFFE_CACHE": home}
    return own | {"PYTHONPYCACHEPREFIX": f"{home}-bytecode", "PYTHONDONTWRITEBYTECODE": ""}
