"""Processes that do their work when asked, so that they can take turns."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from machine import free_environment

HERE = Path(__file__).resolve().parent
ASKED = "--served"  # the word behind which a script is given its settings


class Served:
    """A process of a script of this folder, one BLAS thread in each thread."""

    def __init__(
        self,
        script: str,
        settings: Mapping[str, object],
        environment: Mapping[str, str] | None = None,
    ):
        command = [sys.executable, str(HERE / script), ASKED, json.dumps(settings)]
        own = free_environment() | {"OPENBLAS_NUM_THREADS": "1"} | dict(environment or {})
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=own, stdin=pipe, stdout=pipe, text=True)

    def __call__(self) -> str:
        """Have it work; gives what it answers. Ends this process where that one has ended."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{' '.join(map(str, self.process.args))} has ended")
        return answer

    def end(self) -> None:
        """Let the process go."""
        self.process.communicate()


def serve(begin: Callable[[dict], Callable[[], object]]) -> bool:
    """If this process is one that is asked, begin with its settings, and answer each line by a call."""
    if sys.argv[1:2] != [ASKED]:
        return False
    call = begin(json.loads(sys.argv[2]))
    for _ in sys.stdin:
        print(call(), flush=True)
    return True


def of_checkout(root: Path, home: str) -> dict[str, str]:
    """An environment in which `import minicaffe` takes a checkout's, with plans and bytecode in `home`."""
    own = {"PYTHONPATH": str(root), "MINICAFFE_CACHE": home}
    own |= {"PYTHONPYCACHEPREFIX": f"{home}-bytecode", "PYTHONDONTWRITEBYTECODE": ""}
    return free_environment() | own | {"OPENBLAS_NUM_THREADS": "1"}
