"""Compiled loops behind one signature, so that a table can name them by address. Needs Numba.

An entry is void(where, first, last, piece): it takes the loop's arguments from 64-bit words at `where` and
calls loop(*arguments, first, last). An array is (address, *sizes), a Piece (address, size of a piece), a Tail
(address of its entry, of its words, size of a unit), a tuple its entries, a number its bits.
"""

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.core.ccallback import CFunc
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from minicaffe.backends.cpu import Tail, helper
from minicaffe.backends.cpu.compile_cache import Kept, digest
from minicaffe.backends.cpu.compiler import LoopCompiler
from minicaffe.backends.cpu.vector_ir import LONG as WORD
from minicaffe.backends.cpu.vector_ir import ir, made

SIGNATURE = (types.int64,) * 4, types.void
OPTIONS = {"nogil": True, "error_model": "numpy"}
PLAIN: dict[Any, Any] = {int: types.int64, bool: types.boolean, float: types.float64}


def entry(loop: Any, kinds: tuple[Any, ...]) -> Any:
    """A loop's entry for arguments of these kinds, compiled or found on disk."""
    read, body = _reader(kinds), helper(loop.py_func, loop.targetoptions["fastmath"])

    def call(where: int, first: int, last: int, piece: int) -> None:
        body(*read(where, piece), first, last)

    call.__module__, call.__name__ = loop.__module__, loop.__name__
    # Its name in machine code, where no two may be called alike.
    call.__qualname__ = f"{loop.__name__}_{digest(repr(kinds).encode()).hex()}"
    entry: Any = CFunc(call, SIGNATURE, locals={}, options=OPTIONS, pipeline_class=LoopCompiler)
    entry._cache = Kept(call, kinds)
    entry.compile()
    return entry


def _type(kind: Any) -> Any:
    """Numba's type of a kind of argument.

    >>> _type(("f", 2)), _type(("f", "d"))
    (Array(float32, 2, 'C', False, aligned=True), Tuple((float32, float64)))
    """
    if kind in PLAIN:
        return PLAIN[kind]
    if kind is Tail:
        return types.UniTuple(types.int64, 4)
    if isinstance(kind, str):
        return from_dtype(np.dtype(kind))
    if len(kind) == 2 and isinstance(kind[1], int):
        return types.Array(from_dtype(np.dtype(kind[0])), abs(kind[1]), "C")
    tuple_type: Any = types.BaseTuple
    return tuple_type.from_types([_type(one) for one in kind])


def _reader(kinds: tuple[Any, ...]) -> Any:
    """read(where, piece): the arguments of these kinds, as a tuple, from words in memory."""
    gives = _type(kinds)

    @made
    def read(context: Any, where: Any, piece: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _Words(target, builder, *args).value(kinds, gives)

        return gives(types.int64, types.int64), generate

    return read


class _Words:
    """What reads words one after the other, while an entry is made."""

    def __init__(self, target: Any, builder: Any, where: Any, piece: Any):
        self.target, self.builder, self.piece, self.read = target, builder, piece, 0
        self.base = builder.inttoptr(where, WORD.as_pointer())

    def word(self) -> Any:
        at = self.builder.gep(self.base, [WORD(self.read)])
        self.read += 1
        return self.builder.load(at)

    def value(self, kind: Any, gives: Any) -> Any:
        builder, target = self.builder, self.target
        if isinstance(gives, types.Array):
            return self.array(gives, kind[1] < 0)
        if kind is Tail:
            return target.make_tuple(builder, gives, [*(self.word() for _ in range(3)), self.piece])
        if isinstance(gives, types.BaseTuple):
            return target.make_tuple(builder, gives, [self.value(one, _type(one)) for one in kind])
        word, form = self.word(), target.get_value_type(gives)
        if isinstance(gives, types.Float):
            bits = ir.IntType(gives.bitwidth)
            return builder.bitcast(builder.trunc(word, bits) if bits != WORD else word, form)
        return builder.trunc(word, form) if form.width < 64 else word

    def array(self, gives: Any, piecewise: bool) -> Any:
        """An array, or the piece of it that is this slice's."""
        builder, target = self.builder, self.target
        form = target.get_data_type(gives.dtype)
        item, start = WORD(target.get_abi_sizeof(form)), self.word()
        sizes = [self.word() for _ in range(gives.ndim)]
        if piecewise:
            start = builder.add(start, builder.mul(builder.mul(self.piece, sizes[0]), item))
        steps = [item]
        for size in sizes[:0:-1]:
            steps.insert(0, builder.mul(steps[0], size))
        made = target.make_array(gives)(target, builder)
        shape = cgutils.pack_array(builder, sizes, ty=WORD)
        strides = cgutils.pack_array(builder, steps[: gives.ndim], ty=WORD)
        populate_array(made, builder.inttoptr(start, form.as_pointer()), shape, strides, item, None)
        return made._getvalue()
