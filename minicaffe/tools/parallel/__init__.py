"""Several processes that train one net together: MPI and NCCL, and what their solvers do together."""

from minicaffe.core.communicator import ALONE as ALONE
from minicaffe.core.communicator import Communicator as Communicator
from minicaffe.core.communicator import device_of as device_of
from minicaffe.tools.parallel.launched import world as world
