"""Print the JSON Schema of model files: editors complete and check YAML with it.

example:
  minicaffe schema > minicaffe.schema.json
"""

from __future__ import annotations

import json

from minicaffe.cli.options import Imports
from minicaffe.core.config.schema import schema
from minicaffe.core.layers import REGISTRY

Options = Imports


def run(args: Options) -> None:
    """Print."""
    args.import_files()
    print(json.dumps(schema(REGISTRY), indent=2))
