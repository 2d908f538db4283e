"""Layers of the user's program: whose class it has, which is left out of the dry run, and whose arrays."""

import my_layers

ROWS = {
    "Python": [
        ({"module": my_layers.__name__, "layer": "Scaled", "param_str": "2.5"}, [(2, 3, 2)]),
        ({"module": my_layers.__name__, "layer": "Scaled"}, [(4,)]),
    ],
}
WITHOUT_GRADIENT = {"MemoryData"}
