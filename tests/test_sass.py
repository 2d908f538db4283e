"""The loops of kernels in machine code: how they are found, and what those of a few kernels consist of, without a GPU.

The second part is skipped without NVRTC's wheels and nvdisasm's.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "examples" / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    """Import a script by its name."""
    monkeypatch.setattr(
        sys, "path", [str(BENCHMARKS), str(BENCHMARKS.parent / "paper_tables"), *sys.path]
    )
    return importlib.import_module


# A loop over slabs. Now and then it makes a table, with a division; its inner loop multiplies. All is far from its end.
TEXT = """
\t.section\t.text._Z4slabPf,"ax",@progbits
.text._Z4slabPf:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   ISETP.NE.AND P0, PT, R2, RZ, PT ;
        /*0020*/               @P0 BRA `(.L_x_1) ;
        /*0030*/                   I2F.U32.RP R4, R3 ;
        /*0040*/                   MUFU.RCP R4, R4 ;
        /*0050*/                   F2I.FTZ.U32.TRUNC.NTZ R5, R4 ;
        /*0060*/                   IMAD.HI.U32 R5, R5, R6, R4 ;
        /*0070*/                   IMAD.HI.U32 R5, R5, R7, RZ ;
        /*0080*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64) ;
.L_x_1:
        /*0090*/                   LDG.E R8, desc[UR4][R8.64] ;
.L_x_2:
        /*00a0*/                   LDS.128 R12, [R9] ;
        /*00b0*/                   FFMA R20, R12, R16, R20 ;
        /*00c0*/                   FFMA R21, R12, R17, R21 ;
        /*00d0*/               @P2 BRA P1, `(.L_x_2) ;
        /*00e0*/              @!P3 CALL.REL.NOINC `(.L_x_3) ;
        /*00f0*/                   BRA `(.L_x_0) ;
.L_x_3:
        /*0100*/                   EXIT ;
.L_x_4:
        /*0110*/                   BRA `(.L_x_4);
"""


def test_loops_are_found_and_counted(scripts):
    code = scripts("sass_loops")
    (blocks,) = code.functions(TEXT).values()
    inner, over = code.loops(blocks)
    assert code.counts(blocks[i] for i in inner.blocks) == {"LDS": 1, "FFMA": 2, "BRA": 1}
    assert code.within(over, [inner, over]) == inner.blocks < over.blocks
    assert code.within(inner, [inner, over]) == set()
    assert [code.divisions([block]) for block in blocks if code.divisions([block])] == [2]
    every = code.counts(blocks[i] for i in over.blocks)
    assert (every["IMAD"], every["CALL"], every["MOV"], every["EXIT"]) == (2, 2, 0, 0)


def test_the_longest_way_through_a_turn(scripts):
    code = scripts("sass_loops")
    (blocks,) = code.functions(TEXT).values()
    inner, over = code.loops(blocks)
    dividing = frozenset(i for i in over.blocks if code.divisions([blocks[i]]))
    turn = Counter(ISETP=1, BRA=10, LDG=1, LDS=8, FFMA=16, CALL=1)
    assert code.longest(blocks, over, dividing, {inner.head: 8}) == turn
    most = code.longest(blocks, over, frozenset(), {inner.head: 8})
    assert most - turn == {"I2F": 1, "MUFU": 1, "F2I": 1, "IMAD": 2, "CALL": 1}
    assert code.longest(blocks, over, inner.blocks, {}) == {}  # no way leads around it
    assert code.longest(blocks, inner, inner.blocks, {}) == {}


def test_a_product_is_counted_by_the_slab(scripts):
    sass = scripts("sass")
    (blocks,) = scripts("sass_loops").functions(TEXT).values()
    row = sass.product(blocks, "FFMA", 16)
    assert row["inner"] == {"instructions": 4, "multiply": 2}
    assert row["slab"] == {"instructions": 37, "multiply": 16}
    with pytest.raises(ValueError, match="a slab has 17 FFMA, and 16 are in its code"):
        sass.product(blocks, "FFMA", 17)


def test_the_result_is_of_these_kernels(scripts):
    sass = scripts("sass")
    kept = json.loads((BENCHMARKS / "results" / "sass_cuda.json").read_text())
    kernels = {(row["kernel"].split("<")[0], row["loop"]) for row in kept["entries"]}
    assert kernels == {(name, loop[0]) for name, all_of in sass.ENTRIES.items() for loop in all_of}
    number = len(sass.ARCHITECTURES) * len(sass.WAYS) * len(sass.DIRECTIONS)
    assert len({(row["kernel"], row["sm"]) for row in kept["products"]}) == number
    assert sass.table(None) == "Not yet measured."


@pytest.fixture
def sass(scripts):
    script = scripts("sass")
    if lacking := script.lacking():
        pytest.skip(f"not installed: {', '.join(lacking)}")
    return script


@pytest.mark.parametrize("sm", [pytest.param(80, marks=pytest.mark.long), 90])
def test_the_largest_tile_mostly_multiplies(sass, sm):
    """Its inner loop; and all that a slab takes, nearly."""
    rows = sass.products(sm, ("float, float, Fma",))
    assert [row["direction"] for row in rows] == list(sass.DIRECTIONS)
    for row in rows:
        assert row["inner"]["multiply"] >= 0.8 * row["inner"]["instructions"], row
        assert row["slab"]["multiply"] >= 0.78 * row["slab"]["instructions"], row


@pytest.mark.parametrize("sm", [80, 90])
@pytest.mark.parametrize("ctype", ["float", "__half", "double"])
def test_loops_over_rows_divide_no_integers(sass, ctype, sm):
    """The first loops of moments not at all; all others have ways around it, for rows that are features."""
    rows = sass.entries(ctype, sm)
    assert len(rows) == 7
    assert [row["divisions"] for row in rows[:2]] == [0, 0]
    for row in rows:
        assert row["without_division"], row
