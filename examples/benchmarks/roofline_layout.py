"""The operations of a step as they would be if blobs lay channels last, so far as the model sees a difference.

    implicit               both sides of a slab lie along the depth, 16 bytes side by side: read as Packs
    moments, gradients     neighbouring threads read neighbouring channels, so that a channel's entries may be
                           shared among as many blocks as fill the device: MANY

Bytes and arithmetic stay what they are. That blocks which share a channel need a second kernel for the
entries, and that the first layer's 3 channels fill no pack, is left out: this is the most that it could bring.
"""

MANY = 10_000
BY_CHANNEL = ("moments", "gradients", "normalise", "normalise_gradient")


def channels_last(operations: list[dict]) -> list[dict]:
    """The same operations in that layout.

    >>> op = {"name": "implicit", "template": "float, float, 8, 8, Deep, Each, Bits, false, Tf32"}
    >>> channels_last([op])[0]["template"]
    'float, float, 8, 8, Packs, Packs, Bits, false, Tf32'
    >>> channels_last([{"name": "moments", "grid": [64, 1]}])
    [{'name': 'moments', 'grid': [10000, 1]}]
    """
    return [_one(op) for op in operations]


def _one(op: dict) -> dict:
    if op["name"] == "implicit":
        words = op["template"].split(", ")
        return {**op, "template": ", ".join([*words[:4], "Packs", "Packs", *words[6:]])}
    if op["name"] in BY_CHANNEL:
        return {**op, "grid": [MANY, 1]}
    return op
