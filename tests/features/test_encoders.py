"""Feature spaces in which angles mean something, and who may be compared with whom."""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import csv, parquet
from scipy import sparse
from scipy.signal import periodogram

from pacfl import PACFLClustering, plugins
from pacfl.algorithms import PACFL
from pacfl.errors import ConfigError, DataError
from pacfl.features import Reading, read_samples
from pacfl.features.encoders import BUILT_IN, COLUMNS, digest, encode, in_words, name_of
from pacfl.federation.client_side import ClientIndices, Pool
from pacfl.learning.client_context import Samples
from pacfl.signatures import cluster_files, join_files, sigfile, sign_file
from pacfl.subspace import Compare
from tests.small_federation import model, side

Array = NDArray[np.float64]
WORDS = ["quick", "brown", "fox", "jumps", "over", "lazy", "dog", "while", "wise", "men", "sing", "old", "songs"]


def waves(n: int, cycles: int, seed: int, steps: int = 40, channels: int = 3) -> Array:
    """Signals of one frequency that begin anywhere, with noise."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(0, 2 * np.pi, (n, 1, channels))
    time = np.arange(steps)[None, :, None] / steps
    return np.sin(2 * np.pi * cycles * time + start) + 0.3 * rng.standard_normal((n, steps, channels))


def sentences(n: int, seed: int, words: list[str] = WORDS) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, 8)) for _ in range(n)]


def write_encoder(folder: Path, body: str, name: str) -> str:
    (folder / f"{name}.py").write_text(f"import numpy as np\n\n\ndef encode(x):\n    {body}\n")
    plugins.source_digest.cache_clear()
    sys.modules.pop(name, None)
    return f"{name}:encode"


# What the built-in encoders do


@given(seed=st.integers(0, 999), gain=st.floats(1e-3, 1e3), offset=st.floats(-50, 50))
@settings(max_examples=20, deadline=None)
def test_neither_a_gain_nor_an_offset_changes_a_spectrum(seed: int, gain: float, offset: float) -> None:
    x = waves(5, 3, seed)
    assert np.abs(encode("spectrum", gain * x + offset) - encode("spectrum", x)).max() < 1e-9


def test_a_spectrum_is_by_hand_the_root_of_shares_of_power() -> None:
    """Under a Hann taper a whole cycle k has neighbours of half its amplitude: shares of 1 : 4 : 1, of 6 in all."""
    time = np.arange(64) / 64
    roots = encode("spectrum", np.sin(2 * np.pi * 8 * time + 0.3)[None])[0]
    assert roots[[6, 7, 8]] == pytest.approx(np.sqrt([1 / 6, 4 / 6, 1 / 6]), rel=0.05)
    assert (roots**2).sum() == pytest.approx(1)


@given(seed=st.integers(0, 999))
@settings(max_examples=20, deadline=None)
def test_the_angle_between_two_spectra_is_that_of_their_distributions_of_power(seed: int) -> None:
    """cos of the angle = Σ √(p q) over frequencies: Bhattacharyya's coefficient, with scipy's periodogram."""
    x, taper = waves(2, 3, seed, 41, 1), np.hanning(43)[1:-1]
    p, q = (periodogram(one, window=taper, detrend="constant")[1][1:] for one in x[:, :, 0])
    a, b = encode("spectrum", x)
    assert a @ b == pytest.approx(np.sqrt(p / p.sum() * q / q.sum()).sum())


def test_each_channel_has_its_own_spectrum() -> None:
    x = np.concatenate([waves(4, 2, 0, channels=1), waves(4, 7, 1, channels=1)], axis=2)
    both = encode("spectrum", x).reshape(4, -1, 2)
    for channel in range(2):
        assert both[:, :, channel] == pytest.approx(encode("spectrum", x[:, :, channel]))


def test_clients_of_other_frequencies_are_found_whatever_the_gain_of_a_recording() -> None:
    """Sensors sit tighter in one recording than in another: that is no difference between people."""
    rng = np.random.default_rng(0)
    recording = np.arange(200) // 10
    xs = [
        waves(200, 3 if client < 3 else 5, client) * np.exp(rng.normal(size=(20, 1, 3)))[recording]
        for client in range(6)
    ]
    fitted = PACFLClustering(encoder="spectrum").fit(xs, None, [recording] * 6)
    assert fitted.labels_.tolist() == [0, 0, 0, 1, 1, 1]


def test_silence_is_0_and_hides_no_other_channel() -> None:
    x = waves(3, 2, 0, channels=2)
    x[:, :, 1] = 0.1  # no float holds it: its mean differs in the last digit
    made = encode("spectrum", x).reshape(3, -1, 2)
    assert not made[:, :, 1].any()
    assert made[:, :, 0] == pytest.approx(encode("spectrum", x[:, :, 0]))


def test_standardise_leaves_the_shape_of_every_channel() -> None:
    x = waves(5, 3, 0) * [1.0, 100.0, 0.0] + [0.0, 3.0, 9.0]
    made = encode("standardise", x)
    assert made.shape == x.shape
    assert np.abs(made.mean(axis=1)).max() < 1e-12
    assert made.std(axis=1) == pytest.approx(np.tile([1.0, 1.0, 0.0], (5, 1)))
    assert np.abs(encode("standardise", 9 * x - 4) - made).max() < 1e-9


def test_ngrams_are_by_hand_checksums_of_pieces_of_words() -> None:
    """' ab ' has the pieces ' ab', 'ab ' and ' ab '; case and other spaces do not count."""
    made = encode("ngrams", np.array(["Ab  aB"], dtype=object))
    expected = np.zeros(COLUMNS)
    for gram in (b" ab", b"ab ", b" ab "):
        code = zlib.crc32(gram)
        expected[code % COLUMNS] += -1 if code >> 31 else 1
    assert sparse.issparse(made)
    assert made.toarray()[0] == pytest.approx(expected / np.linalg.norm(expected))


def test_ngrams_of_a_longer_text_have_the_same_length() -> None:
    lengths = np.linalg.norm(
        encode("ngrams", np.array([*sentences(5, 0), " ".join(sentences(9, 1)), " "])).toarray(), axis=1
    )
    assert lengths == pytest.approx([1, 1, 1, 1, 1, 1, 0])


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_encoder_treats_every_sample_on_its_own(name: str) -> None:
    x = np.array(sentences(6, 0), dtype=object) if name == "ngrams" else waves(6, 3, 0)
    dense = [m.toarray() if sparse.issparse(m) else m for m in (encode(name, x), encode(name, x[[4, 2]]))]
    assert dense[0][[4, 2]] == pytest.approx(dense[1])


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("spectrum", np.array(["a"]), r"spectrum encodes signals \(n, steps\) or \(n, steps, channels\), got texts"),
        ("spectrum", np.ones((2, 8, 8, 3)), r"got shape \(2, 8, 8, 3\)"),
        ("spectrum", np.ones((9, 2, 3)), "at least 4 steps"),
        ("ngrams", np.ones((2, 8)), r"ngrams encodes texts, got numbers of shape \(2, 8\); give \.txt"),
    ],
)
def test_samples_that_do_not_fit_an_encoder_are_refused(name: str, x: Array, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        encode(name, x)


# What they are for


def test_clusters_of_signals_are_found_by_their_spectrum_whatever_their_phase() -> None:
    xs = [waves(150, cycles, seed, channels=2) for seed, cycles in enumerate([3, 3, 3, 8, 8, 8])]
    assert PACFLClustering(encoder="spectrum").fit(xs).labels_.tolist() == [0, 0, 0, 1, 1, 1]


def test_clusters_of_texts_are_found_by_their_ngrams() -> None:
    other = ["zwei", "kleine", "katzen", "laufen", "schnell", "durch", "den", "garten", "hinter", "unserem", "haus"]
    xs = [sentences(120, seed, WORDS if seed < 3 else other) for seed in range(6)]
    assert PACFLClustering(encoder="ngrams").fit(xs).labels_.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("compare", ["inputs", "auto"])
def test_pacfl_with_an_encoder_finds_the_clusters_of_signatures_with_it(tmp_path: Path, compare: Compare) -> None:
    """What a client sends is what `pacfl sign --encoder` writes of the same samples, to the bit."""
    xs = [waves(120, cycles, seed, channels=2) for seed, cycles in enumerate([3, 8, 3, 8])]
    y = np.arange(480) % 2
    shape = Samples(np.concatenate(xs).astype(np.float32), y)
    parts = tuple(ClientIndices(np.arange(120 * i, 120 * i + 120), np.arange(1)) for i in range(4))
    algorithm = PACFL(encoder="spectrum", compare=compare)
    clients = side(algorithm, Pool(shape, shape, np.concatenate(xs), parts))
    profiles = {i: clients.profile(0, i) for i in range(4)}
    paths = [tmp_path / f"{i}.npz" for i in range(4)]
    for i, path in enumerate(paths):
        np.savez(path, x=xs[i], y=y[:120])
    how = Reading(encoder="spectrum", labels=None if compare == "inputs" else "y")
    signed = sign_file(paths[1], tmp_path / "one.sig", reading=how)
    assert np.array_equal(profiles[1]["basis"], signed.basis)
    assert np.array_equal(profiles[1]["split_half_angles"], signed.split_half_angles["smallest"].astype(np.float32))
    found = cluster_files(paths, reading=how, compare=compare).clustering.labels
    state = algorithm.admit(algorithm.init_server(model()), profiles)
    assert [state.cluster_of[i] for i in range(4)] == found.tolist() == [0, 1, 0, 1]
    assert not np.array_equal(side(PACFL(), clients.pool).profile(0, 1)["basis"], profiles[1]["basis"])


def test_the_encoder_of_pacfl_is_part_of_what_is_promised_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = write_encoder(tmp_path, "return x[:, :4] ** 2", "stored_encoder")
    assert PACFL(encoder=name).code() == {name: digest(name)}
    assert PACFL(encoder="spectrum").code() == PACFL().code() == {}
    promised = [PACFL(signature_epsilon=1.0, encoder=one).promise() for one in (None, "spectrum", name)]
    assert len({str(promise) for promise in promised}) == 3
    with pytest.raises(ConfigError, match="no encoder 'spektrum'"):
        PACFL(encoder="spektrum")


def test_an_explanation_names_channels_and_frequencies() -> None:
    xs = {f"c{seed}": waves(150, 3 if seed < 2 else 8, seed, channels=1) for seed in range(4)}
    fitted = PACFLClustering(encoder="spectrum", rank=1).fit(xs)
    assert fitted.explain("c0", "c3").features[0].name in ("3 cycles", "8 cycles")


# Texts in files


def test_texts_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    texts, topics = [*sentences(3, 0), 'a "quoted", one'], ["x", "y", "x", "y"]
    (tmp_path / "a.txt").write_text("\n".join([*texts[:2], "", *texts[2:]]) + "\n")
    (tmp_path / "topics.txt").write_text("\n".join(["x", "y", "", "x", "y"]) + "\n")
    lines = [json.dumps({"body": text, "topic": topic}) for text, topic in zip(texts, topics, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    table = pyarrow.table({"n": [1, 2, 3, 4], "body": texts, "topic": topics})
    parquet.write_table(table, tmp_path / "a.parquet")
    csv.write_csv(table, tmp_path / "a.csv")
    for i, (text, topic) in enumerate(zip(texts, topics, strict=True)):
        (tmp_path / "folder" / topic).mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / topic / f"{i}.txt").write_text(text)
    wanted = encode("ngrams", np.array(texts)).toarray()
    for name in ("a.csv", "a.parquet", "a.jsonl"):
        found = read_samples(tmp_path / name, Reading(encoder="ngrams", text="body", labels="topic"))
        assert np.array_equal(found.x.toarray(), wanted), name  # type: ignore[attr-defined]
        assert found.labels is not None
        assert found.labels.tolist() == topics
    found = read_samples(tmp_path / "a.txt", Reading(encoder="ngrams", group=str(tmp_path / "topics.txt")))
    assert np.array_equal(found.x.toarray(), wanted)  # type: ignore[attr-defined]
    assert found.groups is not None
    assert found.groups.tolist() == topics
    found = read_samples(tmp_path / "folder", Reading(encoder="ngrams", labels="folders"))
    assert np.array_equal(found.x.toarray(), wanted[[0, 2, 1, 3]])  # type: ignore[attr-defined]
    assert found.labels is not None
    assert found.labels.tolist() == ["x", "x", "y", "y"]


@pytest.mark.parametrize(
    ("file", "content", "how", "expected"),
    [
        ("a.txt", "one\ntwo\n", Reading(), "texts have no angles; say how they become numbers: --encoder ngrams"),
        ("a.txt", "\n \n", Reading(encoder="ngrams"), "has no text"),
        ("a.txt", "one\n", Reading(encoder="ngrams", labels="no.txt"), "labels of a .txt file are wanted in another"),
        ("a.txt", "one\n", Reading(encoder="ngrams", text="body"), "--text applies to"),
        ("a.jsonl", '{"a": 1}\n', Reading(encoder="ngrams"), "line 1 has no field 'text'; it has a; name the field"),
        ("a.jsonl", "[1]\nx\n", Reading(encoder="ngrams"), "line 1 has no field 'text'"),
        ("a.jsonl", '{"text": 1}\nx\n', Reading(encoder="ngrams"), "line 2 is not JSON"),
        ("a.csv", "a,b\n1,x\n", Reading(encoder="ngrams", text="c"), "has no column 'c'; its columns are a, b"),
        ("a.csv", "a,b\n1,2\n", Reading(encoder="ngrams"), "ngrams encodes texts, got numbers"),
    ],
)
def test_texts_that_cannot_be_read_are_refused(
    tmp_path: Path, file: str, content: str, how: Reading, expected: str
) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=expected):
        read_samples(tmp_path / file, how)


# Sparse files


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.coo_array])
def test_a_sparse_file_has_the_signature_of_the_dense_one(tmp_path: Path, kind: type) -> None:
    x = np.random.default_rng(0).poisson(0.3, (200, 30)).astype(np.float64)
    labels = tmp_path / "y.npy"
    np.save(labels, np.arange(200) % 2)
    np.save(tmp_path / "dense.npy", x)
    sparse.save_npz(tmp_path / "sparse.npz", kind(x))
    for preprocess in ("raw", "unit"):
        how = Reading(labels=str(labels), preprocess=preprocess)  # type: ignore[arg-type]
        a = sign_file(tmp_path / "dense.npy", tmp_path / "a.sig", reading=how)
        b = sign_file(tmp_path / "sparse.npz", tmp_path / "b.sig", reading=how)
        assert np.abs(a.basis - b.basis).max() < 1e-6
        assert a.settings == b.settings
        assert a.classes is not None
        assert b.classes is not None
        assert np.abs(a.classes.directions - b.classes.directions).max() < 1e-3  # stored with 16 bits
    with pytest.raises(DataError, match="would be dense; use --preprocess unit"):
        read_samples(tmp_path / "sparse.npz", Reading(preprocess="normalise"))
    assert PACFLClustering().fit([kind(x), x[:150]]).labels_.tolist() == [0, 0]


def test_positions_outside_of_a_sparse_matrix_are_refused(tmp_path: Path) -> None:
    """scipy would follow them to any place in memory."""
    matrix = sparse.csr_array(np.eye(4))
    matrix.indices[2] = 1 << 20
    sparse.save_npz(tmp_path / "a.npz", matrix)
    with pytest.raises(DataError, match=r"a\.npz: cannot be read as \.npz"):
        read_samples(tmp_path / "a.npz", Reading())
    sparse.save_npz(tmp_path / "b.npz", sparse.csr_array((1, 1 << 40)))
    with pytest.raises(DataError, match="at most 16,777,216 columns"):
        read_samples(tmp_path / "b.npz", Reading())


# Whose signatures can be compared


def test_a_function_of_ones_own_encodes_and_is_part_of_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    paths = [Path(f"{name}.npy") for name in "abcd"]
    for path in paths:
        np.save(path, rng.normal(2, 1, (100, 6)))
    first = write_encoder(tmp_path, "return x[:, :4] ** 2", "own_encoder")
    how = Reading(encoder=first)
    made = sign_file(paths[0], tmp_path / "a.sig", reading=how)
    assert made.encoder == digest(first)
    assert made.basis.shape[0] == 4
    assert in_words(made.encoder).startswith("not built in, SHA-256 ")
    cluster_files(paths[:2], reading=how, output=tmp_path / "federation")
    with pytest.raises(DataError, match="the federation's encoder is not built in; name it with --encoder"):
        join_files(tmp_path / "federation", paths[2:3])
    join_files(tmp_path / "federation", paths[2:3], reading=Reading(encoder=first))
    write_encoder(tmp_path, "return x[:, :4] ** 2 + 1", "own_encoder")
    assert digest(first) != made.encoder
    with pytest.raises(DataError, match=r"is not the one of the federation .* its code or its files differ"):
        join_files(tmp_path / "federation", paths[3:], reading=Reading(encoder=first))


def test_files_that_an_encoder_names_are_part_of_the_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = write_encoder(tmp_path, "return x @ np.load('w.npy')\n\n\nencode.files = ['w.npy']", "with_weights")
    digests = set()
    for weight in (1.0, 2.0):
        np.save(tmp_path / "w.npy", np.full((3, 2), weight))
        digests.add(digest(name))
    assert len(digests) == 2


def test_a_newcomer_is_encoded_as_the_federation_was(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.npy" for name in "abc"]
    for seed, path in enumerate(paths):
        np.save(path, waves(100, 3, seed))
    cluster_files(paths[:2], reading=Reading(encoder="spectrum"), output=tmp_path / "federation")
    joined = join_files(tmp_path / "federation", paths[2:])
    assert joined.placed == {"c": 0}
    assert name_of(str(joined.federation.settings.encoder)) == "spectrum"
    with pytest.raises(DataError, match="encoder 'standardise' is not the one of the federation"):
        join_files(tmp_path / "federation", paths[2:], reading=Reading(encoder="standardise"))


def test_signatures_of_different_encoders_are_refused_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", waves(100, 3, 0))
    for name in ("spectrum", None):
        sign_file(tmp_path / "x.npy", tmp_path / f"{name}.sig", reading=Reading(encoder=name))
    assert sigfile.read(tmp_path / "spectrum.sig").encoder == digest("spectrum")
    with pytest.raises(DataError, match="these differ in encoder: spectrum: spectrum; none: None"):
        cluster_files([tmp_path / "spectrum.sig", tmp_path / "None.sig"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x - x.mean(axis=0)", "encodes a sample differently when it comes alone"),
        (
            "return x[:3]",
            r"made an array of shape \(3, 6\) .* of 20 samples; it must return one row of numbers for each",
        ),
        ("return x.sum(axis=1)", r"made an array of shape \(20,\)"),
        ("raise RuntimeError('no weights')", "fails: RuntimeError: no weights"),
    ],
)
def test_an_encoder_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 6)))
    name = write_encoder(tmp_path, body, f"encoder_{zlib.crc32(body.encode())}")
    with pytest.raises(DataError, match=rf"x\.npy: encoder '{name}' {expected}"):
        read_samples(tmp_path / "x.npy", Reading(encoder=name))


@pytest.mark.parametrize("name", ["spectra", "no_such_module:encode", "math:pi"])
def test_an_encoder_that_does_not_exist_is_refused(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "x.npy", np.ones((20, 6)))
    with pytest.raises((ConfigError, DataError), match=f"encoder '{name}'"):
        read_samples(tmp_path / "x.npy", Reading(encoder=name))


def test_privacy_covers_what_is_encoded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", waves(100, 3, 0))
    made = sign_file(tmp_path / "x.npy", tmp_path / "x.sig", reading=Reading(encoder="spectrum"), epsilon=3.0)
    assert made.encoder == digest("spectrum")
    (tmp_path / "x.txt").write_text("\n".join(sentences(100, 0)))
    made = sign_file(tmp_path / "x.txt", tmp_path / "x.sig", reading=Reading(encoder="ngrams"), epsilon=3.0)
    assert made.settings.private


# Scaling


def test_signals_are_normalised_by_channel_and_square_pictures_as_a_whole(tmp_path: Path) -> None:
    scale = np.array([1.0, 100.0, 0.01])
    np.save(tmp_path / "x.npy", waves(50, 3, 0) * scale + scale)
    x = read_samples(tmp_path / "x.npy", Reading(preprocess="normalise")).x
    assert np.abs(x.mean(axis=(0, 1))).max() < 1e-9
    assert x.std(axis=(0, 1)) == pytest.approx(np.ones(3))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).uniform(size=(50, 8, 8)) * np.arange(8))
    x = read_samples(tmp_path / "x.npy", Reading(preprocess="normalise")).x
    assert x.std() == pytest.approx(1)
    assert x[:, :, 7].std() > 2 * x[:, :, 1].std()
