"""The hooks of minicaffe/plugins.py: how a run is recorded, shown and diagnosed."""

from minicaffe.inspect.live import fit as fit
from minicaffe.inspect.notebook import page as page
from minicaffe.runs.divergence import raise_diverged as raise_diverged
from minicaffe.runs.folder import to_go_on_from as newest_snapshot  # noqa: F401
from minicaffe.runs.kept import Kept as recorder  # noqa: F401, N813
from minicaffe.runs.log_table import Log as log  # noqa: F401, N813
