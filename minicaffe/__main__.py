"""`python -m minicaffe`."""

import sys

from minicaffe.cli import main

sys.exit(main())
