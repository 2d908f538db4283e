"""A net as a table: layers, shapes, parameters, multiply-adds of a forward pass, column buffers."""

from collections.abc import Sequence

from minicaffe.core.net.memory import Sharing
from minicaffe.core.net.step import Graph
from minicaffe.errors import mib, printable

HEAD = ("layer", "type", "tops", "parameters", "multiply-adds", "column bytes")


def summary(graph: Graph, keep: Sequence[str] | None = None) -> str:
    """The table and the sums below it, nothing computed; memory with and without sharing, but for `keep`."""
    context = graph.context
    itemsize = context.dtype.itemsize
    data, both = (Sharing(graph, keep or (), which) for which in ("data", "diff"))
    memory = [f"blobs: {mib(data.before)}; forward only, sharing memory: {mib(data.after)}"]
    if not context.forward_only:
        sizes = f"{mib(both.before)}; diffs sharing memory: {mib(both.after)}"
        memory.append(f"blobs and diffs: {sizes}")
    work = context.workspace_size * itemsize
    packed = sum(getattr(step.layer, "packed_elements", 0) for step in graph.steps) * itemsize
    return "\n".join(
        [
            f"{printable(graph.name or graph.file)}, phase {context.phase}, {context.dtype}",
            table(rows(graph), HEAD, left=(0, 1, 2)),
            *sums(graph),
            *memory,
            f"shared work buffer: {work:,} bytes" + f"; packed weights: {packed:,}" * (packed > 0),
        ]
    )


def rows(graph: Graph) -> list[tuple[str, ...]]:
    """The table's rows, one per layer, under HEAD."""
    itemsize, lines = graph.context.dtype.itemsize, list[tuple[str, ...]]()
    for step in graph.steps:
        layer = step.layer
        tops = ", ".join(
            f"{value.name} {'x'.join(map(str, value.shape)) or 'scalar'}" for value in step.tops
        )
        params = sum(param.size for param in layer.params if param.owner is param)
        columns = f"{layer.column_elements * itemsize:,}" if layer.column_elements else ""
        counts = f"{params:,}", f"{layer.multiply_adds:,}", columns
        lines.append((step.spec.name, step.spec.type, tops, *counts))
    return lines


def sums(graph: Graph) -> list[str]:
    """All parameters and multiply-adds, in lines."""
    params = sum(param.size for param in graph.learnable)
    work = sum(step.layer.multiply_adds for step in graph.steps)
    size = mib(params * graph.context.dtype.itemsize)
    return [f"parameters: {params:,} ({size})", f"multiply-adds of a forward pass: {work:,}"]


def table(
    rows: Sequence[tuple[str, ...]], head: tuple[str, ...], left: tuple[int, ...] = (0,)
) -> str:
    """Rows under a head: columns in `left` are left-aligned, the others right-aligned.

    >>> print(table([("conv1", "520")], ("layer", "parameters")))
    layer  parameters
    conv1         520
    """
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [head, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)
