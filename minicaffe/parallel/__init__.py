"""Several processes that train one net together: who they are, and how they add and tell."""

from minicaffe.parallel.communicator import ALONE as ALONE
from minicaffe.parallel.communicator import Communicator as Communicator
from minicaffe.parallel.launched import device_of as device_of
from minicaffe.parallel.launched import on as on
from minicaffe.parallel.launched import world as world
