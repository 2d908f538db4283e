"""The form of minicaffe's CPU ops that a process runs, chosen before anything is imported."""

import os
import sys

FORMS = {
    "numba": "minicaffe[cpu] (Numba)",
    "numpy": "minicaffe, plain NumPy",
    "cuda": "minicaffe, CUDA",
}


def prepare(settings: dict) -> None:
    """Make this process one of a form, with as many threads in every contender.

    Plain NumPy is what an installation without the extra `cpu` gives: neither Numba nor threadpoolctl.
    """
    form, threads = settings["form"], settings["threads"]
    alone = settings.get("contender", "").partition(" ")[0]
    os.environ["MINICAFFE_NUM_THREADS"] = str(threads)
    if form == "numpy":
        os.environ["MINICAFFE_NUMBA"] = "0"
        sys.modules["numba"] = sys.modules["threadpoolctl"] = None
    if alone != "minicaffe":
        import torch

        torch.set_num_threads(threads)
    if alone != "torch":
        check(form, threads)


def check(form: str, threads: int) -> None:
    """Raise unless minicaffe runs as it should be measured."""
    try:
        from minicaffe.backends.cpu import available
        from minicaffe.backends.cpu.threads import count
    except ModuleNotFoundError:  # an older checkout, beside this one
        from minicaffe.core.ops.loops import available
        from minicaffe.core.ops.threads import count

    if form == "numba" and not available():
        raise SystemExit("the form [cpu] needs Numba: pip install 'minicaffe[cpu]'")
    if form == "numpy" and available():
        raise SystemExit("plain NumPy was asked for, and Numba is used")
    if form != "cuda" and count() != threads:
        raise SystemExit(f"minicaffe uses {count()} threads, not {threads}")
