"""Train a net on all ranks that mpiexec starts: the run of one process, in less time.

mpiexec -n 2 python examples/train_on_mpi.py [MODEL] [ITERATIONS]
"""

import sys
from pathlib import Path

import minicaffe

LENET = Path(__file__).parent.parent / "models" / "lenet.yaml"


def main(model: str | Path = LENET, iterations: int | str = 500) -> None:
    ranks = minicaffe.parallel.world()  # without mpiexec this process alone
    solver = minicaffe.Solver(
        model,
        communicator=ranks,
        max_iter=int(iterations),
        snapshot_after_train=False,
    )
    share = solver.net.context.share
    print(
        f"rank {ranks.rank} of {ranks.size} has {share.count} of {share.whole} samples", flush=True
    )
    scores = solver.solve()
    if ranks.rank == 0:  # all have the same weights and scores
        print(scores)
        solver.net.save("trained.npz")


if __name__ == "__main__":
    main(*sys.argv[1:])
