"""The layer whose class the user wrote; it works on the host, and is left out of the dry run."""

from __future__ import annotations

import my_layers

ROWS = {
    "Python": [
        ({"module": my_layers.__name__, "layer": "Scaled", "param_str": "2.5"}, [(2, 3, 2)]),
        ({"module": my_layers.__name__, "layer": "Scaled"}, [(4,)]),
    ],
}
