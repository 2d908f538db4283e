"""The hooks of minicaffe/core/plugins.py: how a run is recorded, shown and diagnosed."""

from minicaffe.tools.training.divergence import raise_diverged as raise_diverged
from minicaffe.tools.training.folder import to_go_on_from as newest_snapshot  # noqa: F401
from minicaffe.tools.training.folder import weights as best_weights  # noqa: F401
from minicaffe.tools.training.log_table import Log as log  # noqa: F401, N813
from minicaffe.tools.training.run import Kept as recorder  # noqa: F401, N813
from minicaffe.tools.visualize.live import fit as fit
from minicaffe.tools.visualize.notebook import page as page
