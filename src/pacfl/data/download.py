"""Download of data sets from where they are published, checked by their checksums."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from pacfl.data.loading import data_folder
from pacfl.data.specs import DATASETS, how_to_get
from pacfl.errors import DataError, library
from pacfl.files import locked
from pacfl.settings import suggestion


def download(name: str, folder: str | Path | None = None) -> list[Path]:
    """The files of a data set; those that are missing in the folder are downloaded.

    A file appears under its name only when it is complete and has the expected checksum. An interrupted download
    starts again; of two processes that download the same file, one waits for the other.
    """
    if name not in DATASETS:
        raise DataError(f"there is no data set {name!r} to download{suggestion(name, _downloadable())}")
    spec = DATASETS[name]
    if not spec.files:
        raise DataError(f"{name} cannot be downloaded; {how_to_get(spec)}")
    pooch = library("pooch", f"downloading {name}", "data")
    place = data_folder(folder)
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # programs print, libraries do not
    try:
        return [_fetched(pooch.retrieve, place / file.target, file.url, file.md5) for file in spec.files]
    finally:
        logger.setLevel(level)


def _fetched(retrieve: Callable[..., object], target: Path, url: str, md5: str) -> Path:
    partial = target.with_name(f".{target.name}.part")  # a folder, which no reader searches
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent):
            try:
                shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
                if not _is_complete(target, md5):
                    retrieve(url, known_hash=f"md5:{md5}", fname=target.name, path=partial)
                    (partial / target.name).replace(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"{url} could not be downloaded to {target}: {reason}. Nothing was saved; try again, or fetch the file by "
            f"hand and put it there (md5 {md5})"
        ) from None
    return target


def _is_complete(path: Path, md5: str) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest() == md5


def _downloadable() -> list[str]:
    return [name for name, spec in DATASETS.items() if spec.files]
