"""The nets of models/ that zoo.py measures, and how many samples each is given."""

NETS = (
    "logistic_regression",
    "lenet",
    "cifar10_quick",
    "cifar10_full",
    "mnist_autoencoder",
    "mnist_siamese",
    "lstm",
    "squeezenet",
    "mobilenet",
    "googlenet",
    "alexnet",
    "caffenet",
    "resnet50",
    "vgg16",
    "fcn8s",
)
BATCH = {"infer": 1, "train": 8}
TRAIN_BATCH = {"fcn8s": 1}  # eight pictures of 500 x 500 do not fit into 24 GiB
STREAMS = {"lstm"}  # whose data are (t, n, ...)


def batch_of(name: str, way: str) -> int:
    """How many samples a net is given."""
    return TRAIN_BATCH.get(name, BATCH[way]) if way == "train" else BATCH[way]
