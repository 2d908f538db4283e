"""Functions compiled as parts of others: no machine code of their own. Needs Numba.

Numba makes machine code of every function by itself, and then again within each that calls it, into which LLVM
puts it. A part is left as it was translated, for its callers: what is optimised, once, is a whole loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Library(JITCodeLibrary):
    """A function's code, to be linked into others only."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """None: Python cannot call it."""
        return 0

    @property
    def codegen(self) -> _Library:
        """What is asked to `set_env`: there is no machine code that has one."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing."""


class _Compiler(Compiler):
    """Numba's, for a function that nothing but compiled code calls."""

    def __init__(
        self, typing: Any, target: Any, _: Any, args: Any, gives: Any, flags: Any, local: Any
    ):
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        library = _Library(target.codegen(), "part")
        super().__init__(typing, target, library, args, gives, flags, local)


def part(function: Callable[..., Any], **options: Any) -> Any:
    """A function that only compiled code may call, compiled into each that does."""
    made: Any = numba.njit(pipeline_class=_Compiler, **options)
    dispatcher = made(function)
    find = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: find([_general(arg) for arg in args], kws)
    return dispatcher


def _general(kind: Any) -> Any:
    """A type of argument without its value, for which Numba would translate the function anew.

    Tuples of several types stay as they are: Numba does not cast them to tuples of one.
    """
    return kind if isinstance(kind, types.Tuple) else types.unliteral(kind)
