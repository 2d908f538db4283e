"""The command line: each command is a class, whose file is imported only when it is asked for."""

import argparse
import errno
import importlib
import os
import shlex
import sys
from typing import Any

from minicaffe.cli.parser import Parser, add_options, from_caffes, hint
from minicaffe.errors import MinicaffeError, did_you_mean, note

GROUPS = {
    "start here": {
        "train": "train a net as its model file says",
        "test": "score weights on the test data",
        "predict": "classify your own pictures",
        "new": "print the model file for your own data",
        "fetch": "download a data set, or published weights",
        "models": "the models that come with minicaffe, by name",
    },
    "look": {
        "report": "a run, or several, as one page: curves, net, mistakes",
        "runs": "the runs here, with their best scores",
        "summary": "layers, shapes, parameters, multiply-adds, memory",
        "draw": "a net as a picture: SVG, PNG, DOT",
        "data": "look at a data set: shapes, classes, values, pictures",
        "layers": "the catalogue of layers, or one layer's keys",
    },
    "Caffe and other formats": {
        "convert": "write a model or weights in another format, Caffe's or ours",
        "import": "read a model of ONNX as a Caffe net, proven by numbers",
        "convert-images": "pictures into an LMDB database or an .npz",
        "mean": "the mean image of a data set",
    },
    "deploy": {
        "export": "write a net for other runtimes: ONNX, PyTorch's state_dict",
        "calibrate": "ranges for compilers to int8, in their tables",
    },
    "the machine": {
        "doctor": "what is installed here and what would be used",
        "time": "milliseconds of each layer, forward and backward",
        "explain": "how each convolution is computed, and what was measured",
        "warm": "compile and measure nets ahead, so that nothing waits for it",
        "replay": "compute a step again: what each blob held when it diverged",
        "completion": "complete commands at the prompt of bash, zsh, fish",
        "schema": "the JSON Schema of model files, for editors",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}

FILES = {  # that hold several commands; another command is in a file of its own name
    "catalogue": ("layers", "schema", "models", "fetch"),
    "convert": ("convert", "import", "export", "calibrate"),
    "data": ("data", "mean", "convert-images"),
    "doctor": ("doctor", "completion"),
    "explain": ("explain", "time", "warm"),
    "nets": ("summary", "draw"),
    "own_data": ("new",),
    "runs": ("runs", "report", "replay"),
}

# Held to one thread unless the user says otherwise: the products of one sample are too small to share.
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
WIDEST = 110  # columns of a help's text
UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EBADF)  # stdout: a full disk, a lost terminal, no file


def command_of(name: str) -> Any:
    """Returns the class of a command, such as ConvertImages: a CommandOptions that is called."""
    file = next((file for file, names in FILES.items() if name in names), name)
    module = importlib.import_module(f"minicaffe.cli.{file}")
    return getattr(module, name.title().replace("-", ""))


def help_of(command: type) -> tuple[str, str]:
    """What a command's docstring says it does, and its examples; its paragraphs as wide as the terminal.

    `python -OO` drops docstrings; then it is read where it stands.
    """
    import inspect
    import shutil
    import textwrap

    text = command.__doc__
    if text is None:
        import ast

        (body,) = ast.parse(inspect.getsource(command)).body
        text = ast.get_docstring(body) or ""  # type: ignore[arg-type]
    description, word, examples = inspect.cleandoc(text).partition("example:\n")
    width = min(shutil.get_terminal_size().columns - 2, WIDEST)
    paragraphs = (textwrap.fill(part, width) for part in description.rstrip().split("\n\n"))
    return "\n\n".join(paragraphs), word + examples.rstrip()


def prepare_streams() -> None:
    """Let stdout and stderr take any text: a closed one leads nowhere, what an encoding lacks is escaped."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a number that was closed: else the next file opened would get it, and what is printed
    os.close(null)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code. A user's mistake is one line on stderr and 2."""
    argv = sys.argv[1:] if argv is None else argv
    prepare_streams()
    for name in BLAS_THREADS:
        os.environ.setdefault(name, "1")
    try:
        return _run(argv)
    except MinicaffeError as error:
        note(f"minicaffe: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        note("minicaffe: interrupted")
        return 130
    except MemoryError:
        note("minicaffe: out of memory; a smaller batch_size needs less")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        note(f"minicaffe: the output cannot be written: {error.strerror}")
        return 2


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: minicaffe COMMAND ...\n\nThe Caffe you can pip install.")
        for title, commands in GROUPS.items():
            print(f"\n{title}:", *(f"  {k:<14} {text}" for k, text in commands.items()), sep="\n")
        print("\nminicaffe COMMAND --help lists the options of a command.\n\nexample:")
        print("  minicaffe train lenet")
        return 0
    if argv[0] == "--version":
        from minicaffe import __version__

        print(f"minicaffe {__version__}")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        near = hint(name) or did_you_mean(name, COMMANDS)
        raise MinicaffeError(f"unknown command {name!r}{near} (see minicaffe --help)")
    command = command_of(name)
    description, examples = help_of(command)
    parser = Parser(
        prog=f"minicaffe {name}",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser, command)
    if name in ("train", "test", "time"):
        options = [option for action in parser._actions for option in action.option_strings]
        done = from_caffes(rest, options)
        if done != rest:
            note(f"minicaffe: Caffe's flags are done, as {shlex.join(['minicaffe', name, *done])}")
        rest = done
    parser.given = rest
    args = parser.parse_args(rest, command())
    args.words = [name, *rest]
    code = args() or 0
    sys.stdout.flush()
    return code
