"""Single words of memory that several threads read and write, and calls by address. Needs Numba.

All of it for compiled code: words lie at an address, since no array is needed for one of them.
"""

import functools
import platform
from collections.abc import Callable, Sequence
from typing import Any

from numba.core import cgutils, types

from minicaffe.backends.cpu.vector_ir import INT, LONG, ir, made

X86, ARM = ("x86_64", "amd64"), ("aarch64", "arm64")


def _on_word(emit: Callable[..., Any], result: Any = types.int64) -> Any:
    """What emit(builder, word, ...) does with the word at an address."""

    @functools.wraps(emit)
    def call(context: Any, *words: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = emit(builder, builder.inttoptr(args[0], LONG.as_pointer()), *args[1:])
            return target.get_dummy_value() if result is types.void else value

        return result(*[types.int64] * len(words)), generate

    return made(call)


def _exchange(how: str) -> Any:
    """An operation of two numbers on the word at an address; returns what was there."""
    return _on_word(lambda builder, word, value: builder.atomic_rmw(how, word, value, "seq_cst"))


# The word at an address, and all that was written before it was stored
load = _on_word(lambda builder, word: builder.load_atomic(word, ordering="acquire", align=8))
# Set it; who loads it sees all that was written before
store = _on_word(
    lambda builder, word, value: builder.store_atomic(value, word, ordering="release", align=8),
    types.void,
)
swap, add = _exchange("xchg"), _exchange("add")


@made
def pause(context: Any) -> Any:
    """Tell the processor that this thread looks at a word again and again."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        machine = platform.machine().lower()
        name = "llvm.x86.sse2.pause" if machine in X86 else "llvm.aarch64.hint"
        operands = [] if machine in X86 else [INT(1)]
        if machine in X86 + ARM:
            kind = ir.FunctionType(ir.VoidType(), [one.type for one in operands])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands)
        return target.get_dummy_value()

    return types.void(), generate


def function(result: int, sizes: Sequence[int]) -> Any:
    """A call of the C function at an address: bits of its result, 0 for none, and of its integers."""

    @made
    def call(context: Any, where: Any, args: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = [ir.IntType(bits) for bits in sizes]
            gives = ir.IntType(result) if result else ir.VoidType()
            at = builder.inttoptr(args[0], ir.FunctionType(gives, kinds).as_pointer())
            values = [builder.extract_value(args[1], i) for i in range(len(sizes))]
            cast = [
                v if k.width == 64 else builder.trunc(v, k)
                for v, k in zip(values, kinds, strict=True)
            ]
            value = builder.call(at, cast)
            return builder.sext(value, LONG) if 0 < result < 64 else value

        gives = types.int64 if result else types.void
        return gives(types.int64, types.BaseTuple.from_types([types.int64] * len(sizes))), generate

    return call
