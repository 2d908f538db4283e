"""The nets of models/ that zoo.py measures, how many samples each is given, and who else computes them."""

ALONE = "minicaffe, one thread"  # a contender of inference
NETS = {
    "logistic_regression": "logistic regression",
    "lenet": "LeNet",
    "cifar10_quick": "CIFAR-10 quick",
    "cifar10_full": "CIFAR-10 full",
    "mnist_autoencoder": "autoencoder of MNIST",
    "mnist_siamese": "siamese LeNet, of a pair",
    "lstm": "character LSTM",
    "squeezenet": "SqueezeNet 1.1",
    "mobilenet": "MobileNet v1",
    "googlenet": "GoogLeNet",
    "alexnet": "AlexNet",
    "caffenet": "CaffeNet",
    "resnet50": "ResNet-50",
    "vgg16": "VGG-16",
    "fcn8s": "FCN-8s",
}
PEERS = {
    "torch": "PyTorch",
    "opencv": "OpenCV 4",
    "onnxruntime": "onnxruntime",
    "openvino": "OpenVINO",
}
BATCH = {"infer": 1, "train": 8}
CUDA_BATCH = {"infer": 1, "train": 32}
TRAIN_BATCH = {"fcn8s": 1}  # a picture at a time, as its authors trained it
LARGER = {"alexnet": 128, "caffenet": 128}  # on CUDA, as others measure them
RATE = 1e-6  # of learning; small, as what is timed shall not diverge on noise
MOMENTUM, DECAY = 0.9, 0.0005
STREAMS = {"lstm"}  # whose data are (t, n, ...)


def batch_of(name: str, way: str) -> int:
    """How many samples a net is given."""
    return TRAIN_BATCH.get(name, BATCH[way]) if way == "train" else BATCH[way]


def cuda_batch_of(name: str, way: str) -> int:
    """The same on CUDA."""
    return (TRAIN_BATCH | LARGER).get(name, CUDA_BATCH[way]) if way == "train" else CUDA_BATCH[way]
