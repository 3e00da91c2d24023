"""Signatures whose directions only a key shows: the same clusters, and features are named where the key is."""

import json
import struct
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pacfl.errors import DataError, SignatureError
from pacfl.features import init_schema
from pacfl.features.reading import Samples
from pacfl.folders import required
from pacfl.signatures import (
    Federation,
    Reading,
    SignatureFile,
    cluster_files,
    explain_pair,
    join_files,
    replace_file,
    sigfile,
    sign_file,
    write_key,
)
from pacfl.signatures.federation import federate, join
from pacfl.signatures.folder import load
from pacfl.signatures.keying import keyed_signature, unkeyed_federation
from pacfl.signatures.keys import key_id, read_key
from pacfl.signatures.signing import sign, sign_privately
from pacfl.subspace import MEASURES, proximity
from tests.conftest import Run
from tests.signatures.labelled import CLASSES, parties, samples
from tests.signatures.test_table_signatures import write_site

KEY, OTHER = b"a key of the federation", b"another key of all clients"
COLUMNS = tuple(f"c{j:02d}" for j in range(20))
Clients = dict[str, SignatureFile]


def plain_clients(n: int = 8) -> Clients:
    """Every second client gives the same inputs other labels."""
    xs, ys = parties(n)
    return {name: sign(name, Samples(xs[name], ys[name], COLUMNS), 3, Reading(labels="y")) for name in xs}


@cache
def unlabelled_clients() -> Clients:
    """Three clients in each of two planes of 300 features, the second half shifted by 100 of them."""
    rng, made = np.random.default_rng(0), {}
    for i in range(6):
        x = rng.normal(size=(200, 300))
        x[:, 100 * (i // 3) : 100 * (i // 3) + 2] += 8 * rng.normal(size=(200, 2))
        made[f"u{i}"] = sign(f"u{i}", Samples(x), 2, Reading())
    return made


@cache
def private_clients() -> Clients:
    """The same parties, larger, with private classes."""
    made = {f"p{i}": samples(i, i % 2, (500,) * CLASSES) for i in range(8)}
    names = [str(c) for c in range(4)]
    return {n: sign_privately(n, Samples(*both), 3, Reading(labels="y"), 8.0, 1e-5, names) for n, both in made.items()}


def hidden(clients: Clients, key: bytes = KEY) -> Clients:
    return {name: keyed_signature(name, one, key) for name, one in clients.items()}


KINDS = {"labelled": plain_clients, "unlabelled": unlabelled_clients, "private": private_clients}


@pytest.mark.parametrize("kind", KINDS)
def test_clusters_angles_and_evidence_are_those_of_plain_signatures(kind: str) -> None:
    clients = KINDS[kind]()
    plain, keyed = federate(clients), federate(hidden(clients))
    assert plain.clustering.labels.max() == 1
    assert keyed.clustering.labels.tolist() == plain.clustering.labels.tolist()
    assert np.allclose(keyed.clustering.proximity, plain.clustering.proximity, atol=1e-4)
    assert keyed.diagnosis.kind == plain.diagnosis.kind
    assert keyed.diagnosis.size == pytest.approx(plain.diagnosis.size, rel=1e-2)  # directions of classes are float16
    for basis in keyed.bases:
        assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-5)
    for measure in MEASURES:
        assert np.allclose(proximity(keyed.bases, measure), proximity(plain.bases, measure), atol=1e-3)


def test_nothing_in_a_keyed_signature_has_a_direction_of_the_plain_one() -> None:
    """A feature that carries a whole direction, and a class, can no longer be found."""
    plain = plain_clients(1)["p0"]
    keyed = keyed_signature("p0", plain, KEY)
    assert plain.classes is not None
    assert keyed.classes is not None
    pairs = [(plain.basis, keyed.basis), *zip(plain.classes.directions, keyed.classes.directions, strict=True)]
    for before, after in pairs:
        assert np.abs((before * after).sum(axis=0)).max() < 0.9
    assert keyed.classes.names == plain.classes.names
    assert np.array_equal(keyed.classes.split_half_angles, plain.classes.split_half_angles)


def test_noise_for_privacy_is_drawn_before_the_transform() -> None:
    """The guarantee and everything but directions are those of the private signature."""
    plain = private_clients()["p0"]
    keyed = keyed_signature("p0", plain, KEY)
    assert keyed.privacy == plain.privacy
    assert keyed.samples is None
    directions_only = replace(keyed, basis=plain.basis, classes=plain.classes, key=None, keyed=())
    assert directions_only.contents() == plain.contents()


def test_the_file_says_which_key_and_not_the_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    made = write_key(key)
    assert key.stat().st_mode & 0o777 == 0o600
    np.savez(tmp_path / "a.npz", x=samples(0)[0], y=samples(0)[1])
    signed = sign_file(tmp_path / "a.npz", tmp_path / "a.sig", reading=Reading(labels="y"), key=key)
    read = sigfile.read(tmp_path / "a.sig")
    assert (read.key, read.keyed, read.directions_key, read.names_key) == (made, ("directions",), made, None)
    assert read.settings.labels == "plain names"
    assert np.array_equal(read.basis, signed.basis)
    assert read_key(key) not in (tmp_path / "a.sig").read_bytes()
    hashed = Reading(labels="y", hash_labels=key)
    both = sign_file(tmp_path / "a.npz", tmp_path / "b.sig", reading=hashed, key=key)
    assert sigfile.read(tmp_path / "b.sig").keyed == both.keyed == ("names", "directions")
    only = sign_file(tmp_path / "a.npz", tmp_path / "c.sig", reading=hashed)
    assert sigfile.read(tmp_path / "c.sig").keyed == only.keyed == ("names",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keyed": []}, "has a key for \\[\\]"),
        ({"keyed": ["angles"]}, "has a key for \\['angles'\\]"),
        ({"keyed": 3}, "has a key for 3"),
        ({"keyed": ["names"]}, "in format version 3"),
        ({"key": None}, "one for names or directions was wanted"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "a.sig"
    sigfile.write(path, keyed_signature("a", unlabelled_clients()["u0"], KEY))
    content = path.read_bytes()
    magic, version, length = sigfile.PREFIX.unpack(content[: sigfile.PREFIX.size])
    header = json.loads(content[sigfile.PREFIX.size : sigfile.PREFIX.size + length]) | change
    written = json.dumps(header).encode()
    prefix = struct.pack("<8sHI", magic, version, len(written))
    path.write_bytes(prefix + written + content[sigfile.PREFIX.size + length :])
    with pytest.raises(SignatureError, match=message):
        sigfile.read(path)


def test_earlier_releases_refuse_keyed_files(tmp_path: Path) -> None:
    """They would compare them with plain ones: the version of the format is one that they do not know."""
    made = unlabelled_clients()["u0"]
    versions = []
    for i, one in enumerate((made, keyed_signature("a", made, KEY))):
        sigfile.write(tmp_path / f"{i}.sig", one)
        versions.append(sigfile.PREFIX.unpack((tmp_path / f"{i}.sig").read_bytes()[: sigfile.PREFIX.size])[1])
    assert versions == [2, 3]


def test_other_keys_and_plain_signatures_are_refused_by_name() -> None:
    clients = plain_clients(6)
    keyed, other = hidden(clients), hidden(clients, OTHER)
    one = f"key {key_id(KEY)}: p0, p1, p2"
    with pytest.raises(DataError, match=rf"differ in the key of their directions: {one}; no key: p3, p4, p5\. Angles"):
        federate({**{n: keyed[n] for n in ("p0", "p1", "p2")}, **{n: clients[n] for n in ("p3", "p4", "p5")}})
    with pytest.raises(DataError, match=rf"key {key_id(OTHER)}: p5\. .* again with --key and one file"):
        federate({**keyed, "p5": other["p5"]})
    federation = federate({n: keyed[n] for n in ("p0", "p1", "p2", "p3")})
    for newcomer in (clients["p4"], other["p4"]):
        with pytest.raises(DataError, match="differ in the key of their directions"):
            join(federation, {"p4": newcomer})
    assert join(federation, {"p4": keyed["p4"], "p5": keyed["p5"]}).placed == {"p4": 0, "p5": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A federation of keyed signatures with names of columns, and the key beside it."""
    (tmp_path / "key").write_bytes(KEY)
    for name, one in hidden(different_inputs()).items():
        sigfile.write(tmp_path / f"{name}.sig", one)
    cluster_files(sorted(tmp_path.glob("*.sig")), output=tmp_path / "f")
    return tmp_path


def different_inputs() -> Clients:
    """Labelled clients of which the last three have another column 7."""
    xs, ys = parties(6, 1)
    for i in range(3, 6):
        xs[f"p{i}"][:, 7] += 30
    return {name: sign(name, Samples(xs[name], ys[name], COLUMNS), 3, Reading(labels="y")) for name in xs}


def test_the_key_undoes_the_transform(folder: Path) -> None:
    stored, expected = load(folder / "f"), different_inputs()
    shown = unkeyed_federation(stored, KEY)
    assert shown.settings.directions is None
    for basis, own, one in zip(shown.bases, shown.classes, expected.values(), strict=True):
        assert np.allclose(basis, one.basis, atol=1e-6)
        assert own is not None
        assert one.classes is not None
        assert np.allclose(own.directions, one.classes.directions, atol=2e-3)  # float16


def test_features_are_named_where_the_key_is(run: Run, folder: Path) -> None:
    plain = federate(different_inputs()).explain("p0", "p5")
    found = explain_pair(folder / "f", "p0", "p5", key=folder / "key")
    assert found.features[0].name == plain.features[0].name == "c07"
    assert found.words == plain.words
    code, _, err = run("explain", folder / "f", "p0", "p5")
    assert code == 1
    assert f"keyed with key {key_id(KEY)}" in err
    assert "give its file with --key" in err
    code, out, _ = run("explain", folder / "f", "p0", "p5", "--key", folder / "key", "--json")
    assert json.loads(out)["features"][0]["name"] == "c07"
    (folder / "other").write_bytes(OTHER)
    with pytest.raises(DataError, match=f"keyed with key {key_id(KEY)}, this is {key_id(OTHER)}"):
        explain_pair(folder / "f", "p0", "p5", key=folder / "other")


def test_a_key_for_plain_directions_is_refused() -> None:
    federation = federate(different_inputs())
    with pytest.raises(DataError, match="are not keyed; leave out --key"):
        unkeyed_federation(federation, KEY)


def test_the_server_says_what_angles_show_and_no_feature(folder: Path) -> None:
    """All that is stored and printed of a federation, and its report: kinds and sizes, but no column."""
    from pacfl.report.federations import read

    summary = json.loads((folder / "f" / "clusters.json").read_text())
    assert summary["answer"].endswith("what differs: their inputs.")
    assert summary["clusters"] == [["p0", "p1", "p2"], ["p3", "p4", "p5"]]
    (found,) = read(required(folder / "f", "report", "clusters"), load(folder / "f")).explanations
    assert found.features == ()
    assert not found.contributions.any()
    assert "c07" not in found.words
    assert "where the key is" in found.words
    plain = federate(different_inputs()).explain(0, 1, "clusters")
    assert found.kind == plain.kind
    assert found.size == pytest.approx(plain.size, rel=1e-2)
    assert [one.name for one in found.classes] == [one.name for one in plain.classes]


def test_clients_leave_join_and_are_replaced_under_a_key(folder: Path) -> None:
    again = replace_file(folder / "f", folder / "p0.sig")
    assert again.same
    late = different_inputs()["p5"]
    sigfile.write(folder / "late.sig", keyed_signature("late", late, KEY))
    assert join_files(folder / "f", [folder / "late.sig"]).placed == {"late": 1}
    np.savez(folder / "data.npz", x=samples(9)[0], y=samples(9)[1])
    with pytest.raises(DataError, match="sign newcomers with --key first"):
        join_files(folder / "f", [folder / "data.npz"])


def test_keyed_directions_cannot_be_reordered() -> None:
    clients = plain_clients(4)
    turned = replace(clients["p3"], columns=COLUMNS[::-1])
    with pytest.raises(DataError, match="p3: its columns come in another order, and keyed directions cannot"):
        federate(hidden({**clients, "p3": turned}))


def test_columns_of_tables_cannot_be_keyed(run: Run, tmp_path: Path) -> None:
    """They are compared one by one; a private signature has none, and can."""
    sites = [write_site(tmp_path / f"s{i}.csv", i) for i in range(3)]
    schema, (key, _) = init_schema(sites, tmp_path / "schema.json"), (tmp_path / "key", write_key(tmp_path / "key"))
    code, _, err = run("sign", sites[0], "-o", tmp_path / "a.sig", "--schema", tmp_path / "schema.json", "--key", key)
    assert code == 1
    assert "columns of a table with a schema are compared one by one" in err
    assert not (tmp_path / "a.sig").exists()
    signed = sign_file(sites[0], tmp_path / "a.sig", reading=Reading(schema=schema), epsilon=2.0, key=key)
    assert signed.directions_key is not None


def test_one_key_is_for_names_and_for_directions(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    made = sign("a", Samples(*samples(0)), 3, Reading(labels="y", hash_labels=tmp_path / "key"))
    assert keyed_signature("a", made, KEY).keyed == ("names", "directions")
    with pytest.raises(DataError, match="a federation has one key"):
        keyed_signature("a", made, OTHER)
    with pytest.raises(DataError, match="keyed already"):
        keyed_signature("a", keyed_signature("a", made, KEY), KEY)


def test_the_command_makes_a_key_and_never_overwrites_one(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("key", tmp_path / "key", "--json")
    assert code == 0
    content = (tmp_path / "key").read_bytes()
    assert json.loads(out) == {"file": str(tmp_path / "key"), "key": key_id(content.strip())}
    code, _, err = run("key", tmp_path / "key")
    assert code == 1
    assert "keys are never overwritten" in err
    assert (tmp_path / "key").read_bytes() == content
    assert run("key", tmp_path / "second")[0] == 0
    assert (tmp_path / "second").read_bytes() != content
    code, _, err = run("key", tmp_path / "nowhere" / "key")
    assert code == 1
    assert "cannot be written" in err


def test_inspect_says_that_directions_are_hidden(run: Run, folder: Path) -> None:
    shown = run("inspect", folder / "p0.sig")[1]
    assert "Directions are seen with the key only" in shown
    assert json.loads(run("inspect", folder / "p0.sig", "--json")[1])["keyed"] == ["directions"]


def test_a_federation_keeps_its_key(folder: Path) -> None:
    stored: Federation = load(folder / "f")
    assert stored.settings.directions == key_id(KEY)
