"""Single words of memory that several threads read and write, and calls by address. Needs Numba.

All of it for compiled code: words lie at an address, since no array is needed for one of them.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

made: Any = intrinsic
ir: Any = cgutils.ir  # llvmlite's
WORD = ir.IntType(64)
X86, ARM = ("x86_64", "amd64"), ("aarch64", "arm64")


@made
def load(context: Any, where: Any) -> Any:
    """The word at an address, and all that was written before it was stored."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = builder.inttoptr(args[0], WORD.as_pointer())
        return builder.load_atomic(at, ordering="acquire", align=8)

    return types.int64(types.int64), generate


@made
def store(context: Any, where: Any, value: Any) -> Any:
    """Set the word at an address; who loads it sees all that was written before."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = builder.inttoptr(args[0], WORD.as_pointer())
        builder.store_atomic(args[1], at, ordering="release", align=8)
        return target.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@made
def swap(context: Any, where: Any, value: Any) -> Any:
    """Set the word at an address; returns what was there."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = builder.inttoptr(args[0], WORD.as_pointer())
        return builder.atomic_rmw("xchg", at, args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@made
def add(context: Any, where: Any, value: Any) -> Any:
    """Add to the word at an address; returns what was there."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = builder.inttoptr(args[0], WORD.as_pointer())
        return builder.atomic_rmw("add", at, args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@made
def pause(context: Any) -> Any:
    """Tell the processor that this thread looks at a word again and again."""

    def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        machine, integer = platform.machine().lower(), ir.IntType(32)
        name = "llvm.x86.sse2.pause" if machine in X86 else "llvm.aarch64.hint"
        given = [] if machine in X86 else [integer(1)]
        if machine in X86 + ARM:
            kind = ir.FunctionType(ir.VoidType(), [one.type for one in given])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)
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
            found = builder.call(at, cast)
            return builder.sext(found, WORD) if 0 < result < 64 else found

        gives = types.int64 if result else types.void
        return gives(types.int64, types.BaseTuple.from_types([types.int64] * len(sizes))), generate

    return call
