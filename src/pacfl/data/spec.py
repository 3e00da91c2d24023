"""What is known about a data set that has a name."""

from dataclasses import dataclass

from pacfl.data.readers.search import Format


@dataclass(frozen=True)
class Remote:
    """A file to download: its address, its path in the data folder, its size and its checksum."""

    url: str
    target: str
    size: int  # bytes
    md5: str


@dataclass(frozen=True)
class DatasetSpec:
    """A data set that has a name. Formats are tried in order, so that the published one is preferred to an extract."""

    name: str
    title: str
    n_classes: int
    formats: tuple[Format, ...]
    files: tuple[Remote, ...] = ()
    otherwise: str = ""  # how to get it apart from downloading the files
    kind: str = "image"  # or table, signal, text
    clients: str = ""  # whom the data come from, if they say so
    licence: str = ""
