"""Print the JSON Schema of model files: editors complete and check YAML with it.

example:
  minicaffe schema > minicaffe.schema.json
"""

from __future__ import annotations

import argparse
import json

from minicaffe.cli.options import import_files, import_option
from minicaffe.core.config.schema import schema
from minicaffe.core.layers import REGISTRY


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    import_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print."""
    import_files(args.imports)
    print(json.dumps(schema(REGISTRY), indent=2))
    return 0
