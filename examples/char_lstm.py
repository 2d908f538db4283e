"""A character LSTM reads sonnets, learns which character comes next, and writes.

python examples/char_lstm.py [--small] [--iterations N] [--text FILE] [--heat T]

Explained in docs/examples/training.md.
"""

from pathlib import Path

import numpy as np
from teaching import CPU, LENET, end, options

import minicaffe

MODEL = minicaffe.read(LENET.parent / "lstm.yaml")
SONNETS = Path(__file__).with_name("sonnets.txt")


def streams(codes: np.ndarray, count: int) -> np.ndarray:
    """A text as `count` columns, each going on where the one before ends: (characters, count)."""
    return codes[: len(codes) // count * count].reshape(count, -1).T


def train(solver: minicaffe.Solver, text: np.ndarray, iterations: int) -> None:
    """Let the net read on: each iteration the next t characters of every stream, around and around."""
    blobs = solver.net.blobs
    t = len(blobs["data"].data)
    for _ in range(iterations):
        at = (solver.iteration * t + np.arange(t + 1)) % len(text)
        blobs["data"].data[...] = text[at[:-1]]
        blobs["target"].data[...] = text[at[1:]]  # the next character
        blobs["cont"].data[...] = at[:-1, None] > 0  # 0 where a stream begins anew
        solver.step(1)


def surprise(net: minicaffe.Net, codes: np.ndarray) -> float:
    """Bits a character: the mean of -log2 of the probability given to what comes."""
    t = len(codes) - 1
    net.reshape(data=(t, 1), cont=(t, 1))
    prob = net.forward(data=codes[:-1, None], cont=np.arange(t)[:, None] > 0)["prob"][:, 0]
    return float(-np.log2(prob[np.arange(t), codes[1:]]).mean())


def write(net: minicaffe.Net, length: int, heat: float, first: str = "\n") -> str:
    """Draw character after character; the layers keep their states from one pass to the next."""
    random, text = np.random.default_rng(3), first
    net.reshape(data=(1, 1), cont=(1, 1))
    for n in range(length):
        found = net.forward(data=[[ord(text[-1])]], cont=[[n > 0]])["prob"][0, 0]
        p = found.astype(float) ** (1 / heat)
        text += chr(random.choice(len(p), p=p / p.sum()))
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text).strip("\n")


def main() -> dict[str, list[float] | str]:
    args = options(__doc__, 2400, 40, draws=False, text=str(SONNETS), heat=0.7)
    try:
        read_text = Path(args.text).read_text("utf-8", "replace")
    except OSError as error:
        raise SystemExit(f"{args.text}: {error.strerror}") from None
    codes = np.frombuffer(read_text.encode("ascii", "replace"), np.uint8)
    if len(codes) < 2000:
        raise SystemExit(f"{args.text}: expected at least 2000 characters, got {len(codes)}")
    apart, codes = codes[-600:], codes[:-600]
    solver = minicaffe.Solver(MODEL, display=0, **CPU)
    shape = (20, 10) if args.small else (32, 16)  # steps, streams; the model's is (50, 50)
    solver.net.reshape(data=shape, cont=shape, target=shape)
    writer = minicaffe.Net(MODEL, "TEST", **CPU)
    writer.share_with(solver.net)
    text = streams(codes, solver.net.blobs["data"].shape[1])
    print(f"{len(codes)} characters in {text.shape[1]} streams, {len(apart)} kept apart")
    read, unread = [], []
    for stage in (24, 6, 2, 1):
        train(solver, text, args.iterations // stage - solver.iteration)
        read.append(surprise(writer, codes[:600]))
        unread.append(surprise(writer, apart))
        written = write(writer, 60 if args.small else 200, args.heat)
        print(f"\n{solver.iteration} iterations: {read[-1]:.2f} bits a character of what was read,")
        print(
            f"{unread[-1]:.2f} of what was not; it writes:\n    " + written.replace("\n", "\n    ")
        )
    end()
    return {"read": read, "unread": unread, "written": written}


if __name__ == "__main__":
    main()
