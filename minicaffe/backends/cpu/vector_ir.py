"""Vectors in compiled loops: their width, and the instructions that kernels are emitted from. Needs Numba."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from minicaffe.backends.cpu import at, helper

made: Any = intrinsic
ir: Any = cgutils.ir  # llvmlite's
TUPLE: Any = types.BaseTuple
INT, LONG = ir.IntType(32), ir.IntType(64)


@functools.cache
def wide() -> bool:
    """Whether there are 32 registers of 512 bits; else 16 of 256 are counted on."""
    return "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2]


@functools.cache
def lanes(dtype: Any) -> int:
    """Neighbours that are computed at a time.

    >>> lanes(np.float32) == 2 * lanes(np.float64)
    True
    """
    return (64 if wide() else 32) // int(np.dtype(dtype).itemsize)


@made
def lanes_of(typing, x):
    """`lanes` of an array's type, inside a loop."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return LONG(lanes(np.dtype(str(x.dtype))))

    return types.int64(x), generate


class Emitter:
    """What kernels are made of: vectors, of `lanes` if not of `count`, and positions in arrays of a type."""

    def __init__(self, context: Any, builder: Any, kind: Any, count: int = 0):
        self.context, self.builder, self.kind = context, builder, kind
        self.real = context.get_data_type(kind.dtype)
        self.size = context.get_abi_sizeof(self.real)
        self.count = count or lanes(np.dtype(str(kind.dtype)))
        self.block = 16 // self.size  # lanes of 128 bits, in which they change places fastest
        self.vector = ir.VectorType(self.real, self.count)
        self.name = f"v{self.count}f{8 * self.size}"

    def argument(self, kind: Any, value: Any) -> Any:
        """An argument as kernels take it: see `emitted`."""
        if isinstance(kind, types.Array):
            return self.context.make_array(kind)(self.context, self.builder, value).data
        if isinstance(kind, TUPLE):
            return [*map(self.argument, kind, cgutils.unpack_tuple(self.builder, value))]
        return value

    def at(self, pointer: Any, *positions: Any) -> Any:
        """The address so many entries further."""
        for position in positions:
            pointer = self.builder.gep(pointer, [position])
        return pointer

    def entry(self, table: Any, index: Any, column: int) -> Any:
        """table[index, column] of a table of two columns."""
        where = self.builder.add(self.builder.mul(index, LONG(2)), LONG(column))
        return self.builder.sext(self.builder.load(self.at(table, where)), LONG)

    def load(self, pointer: Any, kind: Any = None) -> Any:
        """A vector, wherever it lies; of another kind if that is given."""
        kind = kind or self.vector
        vector = self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()))
        vector.align = self.context.get_abi_sizeof(kind.element)
        return vector

    def store(self, vector: Any, pointer: Any) -> None:
        """A vector, to wherever."""
        to = self.builder.bitcast(pointer, vector.type.as_pointer())
        self.builder.store(vector, to).align = self.context.get_abi_sizeof(vector.type.element)

    def within(self, start: Any, limit: Any) -> Any:
        """A mask of the lanes l with 0 <= start + l < limit."""
        lane = ir.Constant(ir.VectorType(LONG, self.count), [*range(self.count)])
        numbers = self.builder.add(self.repeated(start), lane)
        return self.builder.icmp_unsigned("<", numbers, self.repeated(limit))

    def load_some(self, pointer: Any, mask: Any) -> Any:
        """A vector that has zeros, and reads nothing, where the mask has none."""
        to = self.builder.bitcast(pointer, self.vector.as_pointer())
        args = to, INT(self.size), mask, self.zero()
        return self.intrinsic(f"masked.load.{self.name}.p0{self.name}", self.vector, *args)

    def store_some(self, vector: Any, pointer: Any, mask: Any) -> None:
        """The lanes that a mask has."""
        args = vector, self.builder.bitcast(pointer, self.vector.as_pointer()), INT(self.size), mask
        self.intrinsic(f"masked.store.{self.name}.p0{self.name}", ir.VoidType(), *args)

    def store_rows(self, vectors: Sequence[Any], pointer: Any, apart: Any) -> None:
        """Vectors, to lines so far apart."""
        for r, vector in enumerate(vectors):
            self.store(vector, self.at(pointer, self.builder.mul(apart, LONG(r))))

    def intrinsic(self, name: str, result: Any, *args: Any, **flags: Any) -> Any:
        """What an instruction that LLVM has a name for makes of some arguments."""
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{name}")
        return self.builder.call(function, args, **flags)

    def prefetch(self, pointer: Any) -> None:
        """Have a line of memory fetched to the second cache, which is read later."""
        address = self.builder.bitcast(pointer, ir.IntType(8).as_pointer())
        self.intrinsic("prefetch.p0i8", ir.VoidType(), address, INT(0), INT(2), INT(1))

    def spread(self, pointer: Any) -> Any:
        """A number in memory, in all lanes."""
        return self.repeated(self.builder.load(pointer))

    def repeated(self, number: Any) -> Any:
        """A number in all lanes."""
        none = ir.Constant(ir.VectorType(number.type, self.count), ir.Undefined)
        return self.pick(self.builder.insert_element(none, number, INT(0)), [0] * self.count)

    def fused(self, left: Any, right: Any, more: Any) -> Any:
        """left * right + more, rounded once."""
        return self.intrinsic(f"fma.{self.name}", self.vector, left, right, more)

    def multiply_add(self, left: Any, right: Any, accumulator: Any) -> None:
        """accumulator += left * right, rounded once."""
        self.builder.store(self.fused(left, right, self.builder.load(accumulator)), accumulator)

    def total(self, vector: Any, more: Any) -> Any:
        """The sum over the lanes, and more."""
        name = f"vector.reduce.fadd.{self.name}"
        return self.intrinsic(name, self.real, more, vector, fastmath=("reassoc",))

    def zero(self) -> Any:
        """A vector of zeros."""
        return ir.Constant(self.vector, [0.0] * self.count)

    def integers(self, value: int) -> Any:
        """An int32 in all lanes."""
        return ir.Constant(ir.VectorType(INT, self.count), [value] * self.count)

    def pick(self, vector: Any, lanes: Sequence[int], other: Any = None) -> Any:
        """Some lanes of a vector, and of another, whose lanes are counted on."""
        mask = ir.Constant(ir.VectorType(INT, len(lanes)), list(lanes))
        other = ir.Constant(vector.type, ir.Undefined) if other is None else other
        return self.builder.shuffle_vector(vector, other, mask)

    def joined(self, parts: Sequence[Any]) -> Any:
        """One vector of several, side by side."""
        while len(parts) > 1:
            lanes, pairs = range(2 * parts[0].type.count), zip(parts[::2], parts[1::2], strict=True)
            parts = [self.pick(one, lanes, other) for one, other in pairs]
        return parts[0]

    def squares(self, lines: Sequence[Any]) -> list[Any]:
        """As many vectors as a block has lanes, turned block by block: the first has all blocks' first lanes.

        Halves of their blocks are put side by side, in steps of 1, 2, ... lanes.
        """
        lines, step = list(lines), 1
        while step < self.block:
            low = [
                block + half + lane + of
                for block in range(0, self.count, self.block)
                for half in range(0, self.block // 2, step)
                for of in (0, self.count)
                for lane in range(step)
            ]
            high = [lane + self.block // 2 for lane in low]
            firsts = [i for i in range(self.block) if not i & step]
            pairs = [(lines[i], lines[i + step]) for i in firsts]
            lines = [self.pick(a, lanes, b) for a, b in pairs for lanes in (low, high)]
            step *= 2
        return lines


def emitted(of: str, count: int = 0) -> Callable[[Callable[..., None]], Any]:
    """Make emit(on, ...) a kernel, which loops call with the arguments behind `on`, an Emitter.

    Its vectors are of the type of the array `of`, or of the first entry of such a tuple. To emit an array is
    the address of its first entry, a tuple a list of its entries; all integers are int64.
    """

    def decorated(emit: Callable[..., None]) -> Any:
        @functools.wraps(emit)
        def kernel(typing, *kinds):
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                kind = kinds[place][0] if isinstance(kinds[place], TUPLE) else kinds[place]
                on = Emitter(context, builder, kind, count)
                emit(on, *map(on.argument, signature.args, args))
                return context.get_dummy_value()

            return types.void(*map(_kind, kinds)), generate

        place = emit.__code__.co_varnames.index(of) - 1
        return made(kernel)

    return decorated


def _kind(kind: Any) -> Any:
    """The type that an argument is cast to."""
    if isinstance(kind, TUPLE):
        return TUPLE.from_types([*map(_kind, kind)])
    return types.int64 if isinstance(kind, types.Integer) else types.unliteral(kind)


@emitted("a")
def add_vector(on, a, a0, more, b, b0):
    """b[b0 + l] = a[a0 + l] + more for all lanes l."""
    on.store(on.builder.fadd(on.load(on.at(a, a0)), on.repeated(more)), on.at(b, b0))


def mover(count: int = 0) -> Any:
    """A copy of a vector, of `count` if not of all lanes: b[b0 + l] = a[a0 + l] for all lanes l."""

    @emitted("a", count)
    def move(on, a, a0, b, b0):
        on.store(on.load(on.at(a, a0)), on.at(b, b0))

    return move


def turned(on: Emitter, rows: list[Any]) -> list[Any]:
    """As many rows as lanes, transposed: at distance 1, 2, 4 ... two of them exchange half of each."""
    distance = 1
    while distance < on.count:
        low = [j if not j & distance else on.count + j - distance for j in range(on.count)]
        high = [j + distance if not j & distance else on.count + j for j in range(on.count)]
        for i in range(on.count):
            if not i & distance:
                two = rows[i], rows[i + distance]
                rows[i] = on.pick(two[0], low, two[1])
                rows[i + distance] = on.pick(two[0], high, two[1])
        distance *= 2
    return rows


@emitted("a")
def _turn(on, a, a0, apart, b, b0, places, place):
    """A square: b[b0 + places[place + j] + i] = a[a0 + i apart + j] for all lanes i, j."""
    builder = on.builder
    rows = [on.load(on.at(a, a0, builder.mul(apart, LONG(i)))) for i in range(on.count)]
    for j, vector in enumerate(turned(on, rows)):
        to = builder.sext(builder.load(on.at(places, place, LONG(j))), LONG)
        on.store(vector, on.at(b, b0, to))


@helper
def to_lanes(x, start, apart, valid, count, places, place, out, to):
    """out[to + places[place + i] + l] = x[start + l apart + i] for i < count; 0 for lanes from `valid` on."""
    lanes = lanes_of(x)
    if valid == lanes and count >= lanes:
        for begin in range(0, count, lanes):
            i = min(begin, count - lanes)
            _turn(x, start + i, apart, out, to, places, place + i)
        return
    for i in range(count):
        vector = to + places[at(place + i)]
        for lane in range(valid):
            out[at(vector + lane)] = x[at(start + lane * apart + i)]
        for lane in range(valid, lanes):
            out[at(vector + lane)] = 0
