"""What a kernel does with its arrays, read from its source: CUDA C++ in, r, w or rw out."""

from __future__ import annotations

import re

BODY = r"__global__\s+void\s+(\w+)\s*\(([^)]*)\)\s*(?=\{)"
STORE = r"\s*=(?!=)"  # what makes of an element a place to write to


def uses(code: str) -> dict[str, dict[str, str]]:
    """Of each kernel its pointers by name: `r` is read, `w` written, `rw` both.

    What a pointer to const points to is read. Else it is written, and read too where an element of it, or of
    a pointer made from it, stands for anything but the left side of a plain assignment; what is assigned
    first and looked at afterwards is still at hand, and is not.

    >>> uses("__global__ void f(int n, const T* x, T* y, T* z) { y[n] = x[n]; z[n] += y[n]; }")
    {'f': {'x': 'r', 'y': 'w', 'z': 'rw'}}
    """
    found = {}
    for head in re.finditer(BODY, code):
        body = code[head.end() : _closed(code, head.end(), "{}")]
        pointers = [part for part in head[2].split(",") if "*" in part]
        found[head[1]] = {
            part.split("*")[-1].replace("__restrict__", "").strip(): part for part in pointers
        }
        for name, part in found[head[1]].items():
            const = "const" in part.split("*")[0].split()
            found[head[1]][name] = "r" if const else "rw" if _is_read(name, body) else "w"
    return found


def _is_read(name: str, body: str) -> bool:
    """Whether an element of an array, or of a pointer made from it, is used."""
    for at in re.finditer(rf"(?<![\w.>]){name}\b", body):
        after, before = body[at.end() :], body[: at.start()].rstrip()
        made = re.search(r"\*\s*(\w+)\s*=$", before)
        if made and not after.lstrip().startswith("["):  # T* to = array + ...
            if _is_read(made[1], after):
                return True
        elif after.lstrip().startswith("["):
            rest = after[_closed(after, after.index("["), "[]") :]
            if not re.match(STORE, rest):
                return True
            if not re.search(rf"\b{name}\b", rest.partition(";")[0]):
                return False
        elif before.endswith("*") and not re.search(r"[\w)\]]\s*\*$", before):  # *array
            if not re.match(STORE, after):
                return True
        elif re.match(r"\s*\+(?!=)", after) and re.search(r"atomic\w+\($", before):
            return True
    return False


def _closed(text: str, at: int, pair: str) -> int:
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i + 1
    raise ValueError("brackets that do not close")
