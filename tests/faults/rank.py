"""A rank of a job on a disk that fails: python rank.py FOLDER CALLS K ERROR WORDS...

Rank 0, which writes all files, has its call K below FOLDER fail (none if K is 0), and lists its calls in CALLS.
"""

import json
import os
import sys
from pathlib import Path


def main() -> int:
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from faults.disk import Disk, Fault

    from minicaffe import cli

    folder, calls, number, error, *words = sys.argv[1:]
    rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
    if rank != "0":
        return cli.main(words)
    disk = Disk(Path(folder), {int(number): Fault(error)} if int(number) else {})
    try:
        with disk:
            return cli.main(words)
    finally:
        Path(calls).write_text(json.dumps([(call.kind, call.path) for call in disk.calls]))


if __name__ == "__main__":
    sys.exit(main())
