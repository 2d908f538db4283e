"""A rank on a GPU of its own, by NCCL; where there is none the stand-in for CuPy has two, and sums by MPI.

mpiexec -n 2 python tests/tools/parallel/on_stand_in.py FILE SYNC [DTYPE]      losses, weights and what was replayed
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import gpu  # noqa: F401
import numpy as np

from minicaffe import Solver, parse
from minicaffe.backends.replay.replay import CudaGraph
from minicaffe.core.communicator import device_of
from minicaffe.core.solver.report import Mute
from minicaffe.tools.parallel import ranks, world

MODEL = """
layers:
  - {name: data, type: DummyData, top: [x, t], shape: [{dim: [5, 2, 9, 9]}, {dim: [5, 4]}], data_filler: [{type: gaussian}, {type: uniform}]}
  - {name: label, type: DummyData, top: label, shape: {dim: [5]}, data_filler: {type: constant, value: 2}}
  - {name: conv, type: Convolution, bottom: x, num_output: 3, kernel_size: 3, bias_term: false}
  - {name: norm, type: BatchNorm, sync: SYNC}
  - {name: relu, type: ReLU, top: norm}
  - {name: ip, type: InnerProduct, bottom: norm, num_output: 4}
  - {name: drop, type: Dropout, top: ip}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], ignore_label: 3}
  - {name: more, type: EuclideanLoss, bottom: [ip, t], loss_weight: 0.1}
solver: {base_lr: 0.05, momentum: 0.9, clip_gradients: 2, iter_size: 2, max_iter: 99, average_loss: 2}
"""


def trained(device, communicator, sync="true", iterations=7, dtype="float64"):
    """Losses, weights, and what of an iteration was in graphs."""
    text = MODEL.replace("SYNC", sync)
    if dtype == "float16":  # of which statistics are not summed over ranks
        text = text.replace(f"type: BatchNorm, sync: {sync}", "type: TanH")
    options = {"engine": "implicit", "report": Mute(), "snapshot_after_train": False}
    solver = Solver(parse(text), device=device, dtype=dtype, communicator=communicator, **options)
    losses = []
    for _ in range(iterations):
        solver.step(1)
        losses.append(solver.loss())
    found = {"losses": np.array(losses), **solver.net.weights()}
    nodes = solver.iterations.recordings.get("iteration", [])
    return found, [node for node in nodes if isinstance(node, CudaGraph)], solver


if __name__ == "__main__":
    import cupy

    ranks.BUCKET = 200
    ranks = world()
    if hasattr(cupy, "is_stand_in"):
        cupy.device_count = ranks.size
    device = device_of("cuda", ranks)
    dtype = (*sys.argv[3:], "float64")[0]
    found, graphs, solver = trained(device, ranks, *sys.argv[2:3], dtype=dtype)
    why = [graph.why for graph in graphs]
    if ranks.rank == 0:
        Path(sys.argv[1]).with_suffix(".why").write_text("; ".join(why))
    ranks.barrier()
    assert graphs and not any(why), why
    assert device.number == ranks.local_rank and "NCCL" in solver.communicator.name
    asked = [name for graph in graphs for part in graph.parts for name, *_ in part.launches]
    count = len(solver.ranks.buckets)
    late = solver.ranks.late  # with 16 bits: one sum, behind the backward pass
    assert count == 1 if late else count > 1
    assert asked.count("all_reduce beside") == (0 if late else count)
    if ranks.rank == 0:
        np.savez(sys.argv[1], **found)
