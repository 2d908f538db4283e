"""How loops are compiled: with few of Numba's passes, and optimised once. Needs Numba.

Numba makes machine code of every function by itself, and then again within each that calls it, into which LLVM
puts it. A part is left as it was translated, for its callers: what is optimised, once, is a whole loop. Numba
also optimises twice, first to find reference counts that cancel out; loops have few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager

from minicaffe.core.interrupt import Held

# Those of Numba's that loops need: no closure, no `with` and no sum of whole arrays is in them.
PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    untyped_passes.DeadBranchPrune,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization,
    typed_passes.AnnotateTypes,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


class _Loop(JITCodeLibrary):
    """A loop's code, optimised once. What it calls is its own: others may keep what is called alike."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class _Part(_Loop):
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
    def codegen(self) -> _Part:
        """What is asked to `set_env`: there is no machine code that has one."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing."""


class LoopCompiler(Compiler):
    """Numba's compiler, for a loop."""

    library: type[_Loop] = _Loop

    def __init__(
        self, typing: Any, target: Any, _: Any, args: Any, gives: Any, flags: Any, local: Any
    ):
        if self.library is _Part:
            flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        library = self.library(target.codegen(), "loop")
        library.enable_object_caching()
        super().__init__(typing, target, library, args, gives, flags, local)

    def define_pipelines(self) -> list[PassManager]:
        """Of the passes; Numba asks for them."""
        manager = PassManager("loop")
        for one in PASSES:
            manager.add_pass(one, one.__name__)
        manager.finalize()
        return [manager]

    def compile_extra(self, function: Any) -> Any:
        """Compile a function. A signal waits: LLVM calls Python, where an exception would be lost."""
        with Held():
            return super().compile_extra(function)


class InnerCompiler(LoopCompiler):
    """Numba's compiler, for a function that nothing but compiled code calls."""

    library = _Part


def part(function: Callable[..., Any], *, fastmath: Any, **options: Any) -> Any:
    """A function that only compiled code may call, compiled into each that does.

    It says its own `fastmath`: else Numba takes that of the loop that is compiled first, and the bits of all
    others depend on which one that is.
    """
    jit: Any = numba.njit(pipeline_class=InnerCompiler, fastmath=fastmath, **options)
    dispatcher = jit(function)
    find = dispatcher.get_call_template

    def by_type(args: Any, kws: Any) -> Any:
        # Without values, for each of which Numba would translate it anew; it does not cast mixed tuples.
        plain = [arg if isinstance(arg, types.Tuple) else types.unliteral(arg) for arg in args]
        return find(plain, kws)

    dispatcher.get_call_template = by_type
    return dispatcher
