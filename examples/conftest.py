"""Tests beside the examples have the options and the fixtures of tests/conftest.py."""

from pathlib import Path

import conftest as tests
from conftest import (  # noqa: F401
    command,
    convolutions_are_timed_in_short,
    cuda,
    device,
    few_digits,
    mnist_folder,
    no_kernels_are_compiled_by_processes,
    no_large_convolution_is_timed_on_the_stand_in,
    no_machine_is_busy,
    nothing_is_done_behind_what_is_held_back,
    older_objects,
    pytest_collect_file,
    scripts,
)

NAME = str(Path(__file__).parent.parent / "tests" / "conftest.py")


def pytest_addoption(parser, pluginmanager):
    """Where tests/ is not among what pytest was asked for, its hooks are not there yet."""
    if not pluginmanager.has_plugin(NAME):
        pluginmanager.register(tests, NAME)
