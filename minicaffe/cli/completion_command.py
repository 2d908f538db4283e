"""Print the script with which a shell completes minicaffe's commands and options.

It needs the extra `completion`.

example:
  minicaffe completion bash > ~/.local/share/bash-completion/completions/minicaffe
  minicaffe completion zsh > ~/.zfunc/_minicaffe
"""

from __future__ import annotations

import argparse
from typing import Annotated, Any

from minicaffe.cli import COMMANDS, command_of
from minicaffe.cli.parser import Arg, CommandOptions, add_options
from minicaffe.errors import MinicaffeError

SHELLS = ("bash", "zsh", "fish", "tcsh")
FILES = {"model", "images", "source", "runs", "input", "output", "data", "weights", "run", "resume"}


class Options(CommandOptions):
    """The options."""

    shell: Annotated[str, Arg("shell", choices=SHELLS), "SHELL", f"one of {', '.join(SHELLS)}"]


def run(args: Options) -> None:
    """Print the script."""
    try:
        import shtab
    except ImportError:
        raise MinicaffeError(
            "completion needs shtab, which the extra brings: pip install 'minicaffe[completion]'"
        ) from None
    print(shtab.complete(whole_parser(shtab.FILE), args.shell))


def whole_parser(files: Any) -> argparse.ArgumentParser:
    """One parser with every command and its options; what takes a file completes as `files` says."""
    whole = argparse.ArgumentParser(prog="minicaffe", allow_abbrev=False)
    commands = whole.add_subparsers(dest="command")
    for name, text in COMMANDS.items():
        parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        add_options(parser, command_of(name).Options)
        for action in parser._actions:
            if action.dest in FILES and action.choices is None:
                action.complete = files  # type: ignore[attr-defined]
    return whole
