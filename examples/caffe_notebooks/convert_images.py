"""Write pictures into an LMDB as convert_imageset does, compute their mean, and read both with a net."""

import lmdb
import numpy as np
from drawn import SHAPES, picture
from PIL import Image

import caffe
from caffe import layers as L, params as P

# -- a list of pictures with labels
rng = np.random.RandomState(0)
with open("list.txt", "w") as f:
    for i in range(12):
        Image.fromarray(picture(SHAPES[i % 3], "yellow", 30, rng)).save("%d.png" % i)
        f.write("%d.png %d\n" % (i, i % 3))

# -- the database
with open("list.txt") as f:
    entries = [line.split() for line in f]
with lmdb.open("pictures_lmdb", map_size=1 << 26) as env, env.begin(write=True) as txn:
    for i, (path, label) in enumerate(entries):
        img = np.array(Image.open(path).convert("RGB").resize((24, 24)))
        img = img[:, :, ::-1].transpose((2, 0, 1))  # blue first, channels first
        im_dat = caffe.io.array_to_datum(img, label=int(label))
        txn.put("{:0>10d}".format(i).encode(), im_dat.SerializeToString())

# -- the mean, of what the database holds
total, count, seen = np.zeros((3, 24, 24)), 0, []
with lmdb.open("pictures_lmdb", readonly=True) as env, env.begin() as txn:
    for _, value in txn.cursor():
        datum = caffe.proto.caffe_pb2.Datum()
        datum.ParseFromString(value)
        array = caffe.io.datum_to_array(datum)
        assert array.shape == (datum.channels, datum.height, datum.width) == (3, 24, 24)
        total += array
        seen.append((array, datum.label))
        count += 1
mean = total / count
with open("mean.binaryproto", "wb") as f:
    f.write(caffe.io.array_to_blobproto(mean[None]).SerializeToString())
np.save("mean.npy", mean)

blob = caffe.proto.caffe_pb2.BlobProto()
with open("mean.binaryproto", "rb") as f:
    blob.ParseFromString(f.read())
assert np.allclose(caffe.io.blobproto_to_array(blob)[0], mean, atol=1e-4)

# -- a net that reads both
n = caffe.NetSpec()
n.data, n.label = L.Data(
    source="pictures_lmdb",
    backend=P.Data.LMDB,
    batch_size=12,
    ntop=2,
    transform_param=dict(mean_file="mean.binaryproto"),
)
n.sum = L.Reduction(n.data)
with open("net.prototxt", "w") as f:
    f.write(str(n.to_proto()))
net = caffe.Net("net.prototxt", caffe.TEST)
net.forward()
assert (
    net.blobs["label"].data.tolist() == [label for _, label in seen] == [i % 3 for i in range(12)]
)
assert np.allclose(net.blobs["data"].data, np.array([array for array, _ in seen]) - mean, atol=1e-3)
assert abs(net.blobs["data"].data.mean()) < 1e-3
