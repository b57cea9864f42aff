"""From folders to data sets: plain files, torchvision's and Hugging Face's own formats, and downloads.

Every data set has a list of places below the data root in which it is looked for. Nothing is downloaded
unless asked; a data set that is missing or broken raises :class:`DatasetError`, which says where was looked
and what to put there.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import importlib.util
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stackfu.errors import InputError, StackfuError
from stackfu_integration.arrays import IntArray
from stackfu_integration.lab.data.datasets import Dataset, Modality, Split
from stackfu_integration.lab.named import is_address, load_address
from stackfu_integration.lab.runtime import import_torchvision

__all__ = [
    "DATASETS",
    "DatasetError",
    "DatasetSpec",
    "Format",
    "find_dataset",
    "load_dataset",
    "register_dataset",
]

Pools = tuple[Split, Split, str]  # train, test, origin
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


class DatasetError(StackfuError):
    """A data set is missing or cannot be read."""


@dataclass(frozen=True)
class Format:
    """One format of a data set: the files that must exist in a folder, and how to read them."""

    description: str
    folders: tuple[str, ...]  # below the data root; an absolute path stays what it is
    files: tuple[str, ...]
    read: Callable[[Path], Pools]


@dataclass(frozen=True)
class DatasetSpec:
    """A data set by name: its shape, its sources in the order of preference, and a download if one exists."""

    name: str
    modality: Modality
    classes: int
    sources: tuple[Format, ...]
    download: Callable[[Path], Pools] | None = None


def _integers(values: Any) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)


def _texts(values: list[str]) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


# ---- digits --------------------------------------------------------------------------------------


def _read_digits(_: Path) -> Pools:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    x = (bunch.data / 16.0).astype(np.float32)
    y = _integers(bunch.target)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=500, stratify=y, random_state=0)
    return Split(x_train, y_train), Split(x_test, y_test), "the 1,797 8x8 digits that scikit-learn carries"


# ---- AG News -------------------------------------------------------------------------------------


def _read_label_text_csv(path: Path) -> Split:
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    try:
        return Split(_texts([row["text"] for row in rows]), _integers([int(row["label"]) for row in rows]))
    except (KeyError, ValueError, TypeError) as error:
        raise DatasetError(f"{path}: expected a CSV file with columns label,text ({error!r})") from error


def _read_ag_news_csv(folder: Path) -> Pools:
    train, test = (_read_label_text_csv(folder / name) for name in ("train.csv", "test.csv"))
    part = "" if len(train) == 120_000 else f"a subset of {len(train):,} rows of "
    return train, test, f"{part}the AG News training split, tested on {len(test):,} rows of its test split"


def _hugging_face(loaded: Any, text: str, label: str) -> tuple[Split, Split]:
    return tuple(  # type: ignore[return-value]
        Split(_texts(list(loaded[pool][text])), _integers(loaded[pool][label])) for pool in ("train", "test")
    )


def _read_ag_news_disk(folder: Path) -> Pools:
    datasets = importlib.import_module("datasets")
    return *_hugging_face(
        datasets.load_from_disk(str(folder)), "text", "label"
    ), "AG News (saved by datasets)"


def _download_ag_news(root: Path) -> Pools:
    datasets = importlib.import_module("datasets")
    loaded = datasets.load_dataset("fancyzhx/ag_news", cache_dir=str(root / "huggingface"))
    return *_hugging_face(loaded, "text", "label"), "AG News"


# ---- Fashion-MNIST -------------------------------------------------------------------------------


def _read_idx(path: Path) -> np.ndarray[Any, Any]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise DatasetError(f"{path}: not an IDX file of bytes")
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", dimensions, 4)
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions)
    if values.size != shape.prod():
        raise DatasetError(f"{path}: holds {values.size} bytes, its header promises {shape.prod()}")
    return values.reshape(shape)


_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _read_fashion_idx(suffix: str) -> Callable[[Path], Pools]:
    def read(folder: Path) -> Pools:
        x_train, y_train, x_test, y_test = (_read_idx(folder / f"{name}{suffix}") for name in _IDX)
        train, test = Split(x_train, _integers(y_train)), Split(x_test, _integers(y_test))
        return train, test, "Fashion-MNIST, official split"

    return read


def _download_fashion(root: Path) -> Pools:
    import_torchvision()
    datasets = importlib.import_module("torchvision.datasets")
    pools = [datasets.FashionMNIST(str(root), train=train, download=True) for train in (True, False)]
    train, test = (Split(pool.data.numpy(), _integers(pool.targets)) for pool in pools)
    return train, test, "Fashion-MNIST, official split"


# ---- CIFAR-100 -----------------------------------------------------------------------------------


def _read_cifar_npz(folder: Path) -> Pools:
    path = folder / "cifar100_25k.npz"
    try:
        with np.load(path) as stored:
            train = Split(stored["x_train"], _integers(stored["y_train"]))
            test = Split(stored["x_test"], _integers(stored["y_test"]))
    except (OSError, KeyError, ValueError) as error:
        raise DatasetError(f"{path}: not the expected archive ({error!r})") from error
    size = f"{len(train):,} training and {len(test):,} test images"
    return train, test, f"a de-duplicated subset of CIFAR-100 ({size}), not the official split"


def _read_cifar_python(folder: Path) -> Pools:
    pools = []
    for name in ("train", "test"):
        with (folder / name).open("rb") as stream:
            stored = pickle.load(stream, encoding="latin1")  # torchvision's own format
        images = stored["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        pools.append(Split(np.ascontiguousarray(images), _integers(stored["fine_labels"])))
    whole = len(pools[0]) == 50_000 and len(pools[1]) == 10_000
    part = "" if whole else f"{len(pools[0]):,} and {len(pools[1]):,} images in the files of "
    return pools[0], pools[1], f"{part}CIFAR-100, official split"


def _download_cifar(root: Path) -> Pools:
    import_torchvision()
    datasets = importlib.import_module("torchvision.datasets")
    pools = [datasets.CIFAR100(str(root), train=train, download=True) for train in (True, False)]
    train, test = (Split(pool.data, _integers(pool.targets)) for pool in pools)
    return train, test, "CIFAR-100, official split"


# ---- by name -------------------------------------------------------------------------------------

DATASETS: dict[str, DatasetSpec] = {
    spec.name: spec
    for spec in (
        DatasetSpec("digits", "vector", 10, (Format("embedded", ("",), (), _read_digits),)),
        DatasetSpec(
            "ag-news",
            "text",
            4,
            (
                Format(
                    "CSV files label,text",
                    ("ag_news", "ag-news"),
                    ("train.csv", "test.csv"),
                    _read_ag_news_csv,
                ),
                Format(
                    "a folder saved by Hugging Face datasets",
                    ("ag_news", "ag-news"),
                    ("dataset_dict.json",),
                    _read_ag_news_disk,
                ),
            ),
            _download_ag_news,
        ),
        DatasetSpec(
            "fashion-mnist",
            "image",
            10,
            (
                Format(
                    "gzipped IDX files (Debian: dataset-fashion-mnist)",
                    ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw", str(DEBIAN_FASHION_MNIST)),
                    tuple(f"{name}.gz" for name in _IDX),
                    _read_fashion_idx(".gz"),
                ),
                Format("IDX files", ("fashion-mnist", "FashionMNIST/raw"), _IDX, _read_fashion_idx("")),
            ),
            _download_fashion,
        ),
        DatasetSpec(
            "cifar100",
            "image",
            100,
            (
                Format("one NumPy archive", ("cifar100",), ("cifar100_25k.npz",), _read_cifar_npz),
                Format("torchvision's format", ("cifar-100-python",), ("train", "test"), _read_cifar_python),
            ),
            _download_cifar,
        ),
        # The full benchmarks: a subset in the same folder is not mistaken for them
        DatasetSpec(
            "cifar100-official",
            "image",
            100,
            (Format("torchvision's format", ("cifar-100-python",), ("train", "test"), _read_cifar_python),),
            _download_cifar,
        ),
        DatasetSpec(
            "ag-news-official",
            "text",
            4,
            (
                Format(
                    "a folder saved by Hugging Face datasets",
                    ("ag_news_official", "ag-news-official"),
                    ("dataset_dict.json",),
                    _read_ag_news_disk,
                ),
                Format(
                    "CSV files label,text",
                    ("ag_news_official", "ag-news-official"),
                    ("train.csv", "test.csv"),
                    _read_ag_news_csv,
                ),
            ),
            _download_ag_news,
        ),
    )
}


def register_dataset(
    name: str,
    read: Callable[[Path], Pools],
    modality: Modality,
    classes: int,
    *,
    folders: Sequence[str] = ("",),
    files: Sequence[str] = (),
    description: str = "registered",
    replace: bool = False,
) -> None:
    """Make a data set known under a name.

    Parameters
    ----------
    name
        Name for presets and ``--data``; without a colon, which marks an address.
    read
        A function of the folder that was found; it returns the training split, the test split and one sentence on the origin.
    modality
        Kind of the inputs: "vector", "image" (n, height, width, channels) or "text" (an array of str).
    classes
        Number of classes; labels are 0 to ``classes - 1``.
    folders, files
        Folders below the data root to search, and the files that must be there.
    description
        One line for the list of data sets.
    replace
        True to replace a data set of this name.
    """
    if not name or ":" in name:
        raise InputError("name", "must be a word without a colon", value=repr(name))
    if name in DATASETS and not replace:
        raise InputError("name", "is taken", value=name)
    source = Format(description, tuple(folders), tuple(files), read)
    DATASETS[name] = DatasetSpec(name, modality, classes, (source,))


def find_dataset(name: str, data_root: Path | None, download: bool = False) -> Callable[[], Pools]:
    """Locate a data set without reading it; raise :class:`DatasetError` if it is nowhere.

    Called before any training starts, so that a missing data set costs nothing.
    """
    if is_address(name):
        load_address(name, "--data")
        return lambda: _own(name, data_root)
    if name not in DATASETS:
        raise InputError("dataset", f"must be one of {', '.join(DATASETS)}, or module:function", value=name)
    spec = DATASETS[name]
    root = Path() if data_root is None else data_root
    looked = []
    for source in spec.sources:
        for folder in (root / below for below in source.folders):
            if all((folder / file).is_file() for file in source.files):
                return lambda source=source, folder=folder: source.read(folder)  # type: ignore[misc]
            looked.append(f"  {folder}/ with {', '.join(source.files)}  ({source.description})")
    if download and spec.download is not None:
        fetch = spec.download
        return lambda: fetch(root)
    hint = "; give its parent folder with --data-root, or allow --download" if spec.download else ""
    raise DatasetError("\n".join([f"data set {name!r} was not found{hint}. Looked for:", *looked]))


def load_own(address: str, data_root: Path | None) -> Dataset:
    """Return the data set that a function ``module:function`` of the data root makes."""
    made = load_address(address, "--data")(data_root)
    if not isinstance(made, Dataset):
        raise InputError("--data", f"{address} must return a Dataset", value=type(made).__name__)
    return made


def _own(address: str, data_root: Path | None) -> Pools:
    made = load_own(address, data_root)
    return made.train, made.test, made.origin


def load_dataset(name: str, data_root: Path | None = None, download: bool = False) -> Dataset:
    """Read a data set by name.

    >>> digits = load_dataset("digits")
    >>> len(digits.train), len(digits.test), digits.classes
    (1297, 500, 10)
    """
    read = find_dataset(name, data_root, download)
    if is_address(name):
        return load_own(name, data_root)
    spec = DATASETS[name]
    try:
        train, test, origin = read()
    except StackfuError:
        raise
    except Exception as error:
        raise DatasetError(f"data set {name!r} was found but cannot be read: {error!r}") from error
    return Dataset(name, spec.modality, train, test, spec.classes, origin)
