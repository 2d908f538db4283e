"""Several processes that train one net together: MPI and NCCL, and what their solvers do together."""

from minicaffe.communicator import ALONE as ALONE
from minicaffe.communicator import Communicator as Communicator
from minicaffe.communicator import device_of as device_of
from minicaffe.parallel.launched import world as world
