"""Sites are added, removed and given other keys, at a link state of Flower's; processes are in the slow tests."""

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.proto.control_pb2 import ListNodesResponse, RegisterNodeRequest, UnregisterNodeRequest
from flwr.server.superlink.linkstate.sql_linkstate import SqlLinkState
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from test_deploy_cli import invoke

from pacfl.errors import DeployError
from pacfl.flower import site_changes
from pacfl.flower.client_registry import fingerprint
from pacfl.flower.deploy import approval, keys, layout, registration, sites, trust
from pacfl.flower.deploy.registration import ServerDownError
from pacfl.flower.deploy.superlink import freeing_keys
from pacfl.secure.identity import read_trusted


class SuperLink:
    """The keys of a server that runs, or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SqlLinkState, "create_node", freeing_keys(SqlLinkState.create_node))
        self.state = SqlLinkState(":memory:", NoOpFederationManager(), ObjectStoreFactory().store())
        self.state.initialize()
        self.runs = True
        monkeypatch.setattr(registration, "_call", self.call)

    def call(self, server: Path, action: str, request: bytes) -> bytes:
        if not self.runs:
            raise ServerDownError(f"no server of {server}")
        if action == "register-node":
            node = RegisterNodeRequest.FromString(request)
            own = {"owner_aid": "me", "owner_name": "me", "public_key": node.public_key, "name": node.name}
            self.state.create_node(**own, heartbeat_interval=30.0)  # as Flower calls it
        elif action == "unregister-node":
            self.state.delete_node("me", UnregisterNodeRequest.FromString(request).node_id)
        return bytes(ListNodesResponse(nodes_info=self.state.get_node_info()).SerializeToString())

    def names(self, folder: Path) -> dict[str, str]:
        return {one.fingerprint: one.name for one in registration.registered(folder)}


@pytest.fixture
def superlink(monkeypatch: pytest.MonkeyPatch) -> SuperLink:
    return SuperLink(monkeypatch)


@pytest.fixture
def deployment(tmp_path: Path, superlink: SuperLink) -> Path:
    """Of two sites that are registered, on this machine."""
    layout.make(tmp_path / "d", ["graz", "lyon"])
    for name in ("graz", "lyon"):
        registration.register(tmp_path / "d" / "server", public(tmp_path / "d", name), name)
    assert len(superlink.names(tmp_path)) == 2
    return tmp_path / "d"


def public(folder: Path, name: str) -> bytes:
    return registration.public_key(folder / "sites" / name / "node.pub")


def own_key(folder: Path) -> Path:
    """A key that a site has made itself; its public half."""
    folder.mkdir()
    keys.write_node_key(folder)
    return folder / "node.pub"


def test_a_site_that_is_added_has_all_that_init_gives(deployment: Path, superlink: SuperLink) -> None:
    done = sites.add(deployment, "oslo")
    assert superlink.names(deployment)[fingerprint(public(deployment, "oslo"))] == "oslo"
    assert layout.load(deployment).sites == ("graz", "lyon", "oslo")
    new, old = (deployment / "sites" / name for name in ("oslo", "lyon"))
    assert {p.name for p in new.iterdir()} == {p.name for p in old.iterdir()}
    assert approval.approved(new) == approval.approved(old)
    assert [p for p in (new, *new.iterdir()) if stat.S_IMODE(p.stat().st_mode) & 0o077] == []
    assert "partition-id=2 num-partitions=3" in (new / "start.sh").read_text()
    assert len(set(layout.load(deployment).site_ports)) == 3
    assert (done.at_server, done.folder) == (True, new)


def test_a_site_that_was_removed_returns_as_the_same_client(deployment: Path, superlink: SuperLink) -> None:
    key, before = fingerprint(public(deployment, "lyon")), layout.load(deployment)
    removed = sites.remove(deployment, "lyon")
    assert (removed.former, removed.folder) == ((key,), deployment / "sites" / "lyon")
    assert list(superlink.names(deployment).values()) == ["graz"]
    assert site_changes.read(deployment / "server").removed == {key}
    assert layout.load(deployment).sites == ("graz",)
    sites.add(deployment, "lyon")
    assert superlink.names(deployment)[key] == "lyon"
    assert site_changes.read(deployment / "server").removed == set()
    after = layout.load(deployment)
    assert (after.sites, after.site_ports, after.removed) == (before.sites, before.site_ports, {})


def test_the_number_of_a_site_that_left_is_given_to_nobody_else(deployment: Path) -> None:
    sites.remove(deployment, "graz")
    sites.add(deployment, "oslo")
    assert "partition-id=2 " in (deployment / "sites" / "oslo" / "start.sh").read_text()


def test_another_key_takes_the_place_of_the_former_one(deployment: Path, superlink: SuperLink) -> None:
    old = fingerprint(public(deployment, "lyon"))
    done = sites.rekey(deployment, "lyon")
    new = fingerprint(public(deployment, "lyon"))
    assert (done.fingerprint, done.former) == (new, (old,))
    assert sorted(superlink.names(deployment).values()) == ["graz", "lyon"]
    assert superlink.names(deployment)[new] == "lyon"
    assert site_changes.read(deployment / "server").replaced == ((old, new),)
    assert stat.S_IMODE((deployment / "sites" / "lyon" / "node.key").stat().st_mode) == 0o600
    assert not (deployment / "sites" / "lyon" / "key.part").exists()


def test_a_key_that_was_replaced_is_refused_for_good(deployment: Path, tmp_path: Path) -> None:
    (tmp_path / "old.pub").write_bytes((deployment / "sites" / "lyon" / "node.pub").read_bytes())
    sites.rekey(deployment, "lyon")
    for act in (
        lambda: sites.add(deployment, "oslo", tmp_path / "old.pub"),
        lambda: sites.rekey(deployment, "lyon", tmp_path / "old.pub"),
    ):
        with pytest.raises(DeployError, match="was replaced by another"):
            act()
    assert not (deployment / "sites" / "oslo").exists()


def test_a_change_of_keys_that_was_interrupted_can_be_repeated(
    deployment: Path, superlink: SuperLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever call of the server was the last one: in the end one key is registered, and it is the same client."""
    old = fingerprint(public(deployment, "lyon"))
    for calls in range(5):
        left = calls

        def interrupted(*given: object) -> bytes:
            nonlocal left
            left -= 1
            if left < 0:
                raise DeployError("interrupted")
            return superlink.call(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(registration, "_call", interrupted)
        with pytest.raises(DeployError, match="interrupted"):
            sites.rekey(deployment, "lyon")
    monkeypatch.setattr(registration, "_call", superlink.call)
    sites.rekey(deployment, "lyon")
    new = fingerprint(public(deployment, "lyon"))
    assert [key for key, name in superlink.names(deployment).items() if name == "lyon"] == [new]
    from pacfl.flower.client_registry import ClientRegistry, Node

    registry = ClientRegistry({old: 0}, {0: "lyon"}, server=deployment / "server")
    registry.update({new: Node(9, "lyon")})
    assert registry.nodes == {0: 9}


def test_the_folder_of_a_server_alone_takes_public_keys(deployment: Path, superlink: SuperLink, tmp_path: Path) -> None:
    server = (deployment / "server").rename(tmp_path / "server")
    sites.add(server, "oslo", own_key(tmp_path / "oslo"))
    old = fingerprint(registration.public_key(tmp_path / "oslo" / "node.pub"))
    new = sites.rekey(server, "oslo", own_key(tmp_path / "new")).fingerprint
    assert superlink.names(server)[str(new)] == "oslo"
    assert site_changes.read(server).replaced == ((old, new),)
    sites.remove(server, "oslo")
    assert sorted(superlink.names(server).values()) == ["graz", "lyon"]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda d: sites.add(d, "lyon"), "different names"),
        (lambda d: sites.add(d, "../oslo"), "different names"),
        (lambda d: sites.add(d, "oslo", d / "no.pub"), "there is no such file"),
        (lambda d: sites.add(d, "oslo", d / "sites" / "lyon" / "node.key"), "is not a public key"),
        (lambda d: sites.add(d, "oslo", d / "sites" / "lyon" / "node.pub"), "is registered as 'lyon'"),
        (lambda d: sites.add(d / "server", "oslo"), "--key node.pub"),
        (lambda d: sites.add(d / "sites", "oslo"), "'pacfl deploy' needs a deployment"),
        (lambda d: sites.remove(d, "oslo"), "there are graz, lyon"),
        (lambda d: sites.remove(d / "server", "oslo"), "there are graz, lyon"),
        (lambda d: sites.rekey(d, "oslo"), "there are graz, lyon"),
        (lambda d: sites.rekey(d / "server", "lyon"), "--key node.pub"),
        (lambda d: sites.rekey(d, "lyon", d / "sites" / "lyon" / "node.pub"), "has this key already"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    act: Callable[[Path], object], message: str, deployment: Path, superlink: SuperLink
) -> None:
    def state() -> object:
        return {p: p.read_bytes() for p in deployment.rglob("*") if p.is_file()}, superlink.names(deployment)

    before = state()
    with pytest.raises(DeployError, match=message):
        act(deployment)
    assert state() == before


def test_without_a_server_here_the_operator_is_told_what_to_do(superlink: SuperLink, tmp_path: Path) -> None:
    """The deployment was made here, and its server runs elsewhere."""
    superlink.runs = False
    layout.make(tmp_path / "d", ["graz", "lyon"], ["fl.example.org"])
    added = sites.add(tmp_path / "d", "oslo")
    assert not added.at_server
    assert "pacfl deploy add-site server oslo --key node.pub" in added.next_steps[0]
    assert (tmp_path / "d" / "sites" / "oslo" / approval.PROPOSED).exists()
    assert approval.approved(tmp_path / "d" / "sites" / "oslo") == set()
    assert "pacfl deploy remove-site server lyon" in sites.remove(tmp_path / "d", "lyon").next_steps[0]
    key = (tmp_path / "d" / "sites" / "graz" / "node.key").read_bytes()
    with pytest.raises(DeployError, match="where it runs"):
        sites.rekey(tmp_path / "d", "graz")
    assert (tmp_path / "d" / "sites" / "graz" / "node.key").read_bytes() == key


def test_on_one_machine_a_site_cannot_leave_while_the_server_is_down(deployment: Path, superlink: SuperLink) -> None:
    """Its key would still be registered."""
    superlink.runs = False
    with pytest.raises(DeployError, match="start it first"):
        sites.remove(deployment, "lyon")
    assert layout.load(deployment).sites == ("graz", "lyon")
    assert sites.add(deployment, "oslo").at_server  # `up` registers it


def test_the_commands_print_what_to_do_next(deployment: Path) -> None:
    code, output = invoke("deploy", "add-site", deployment, "oslo")
    assert code == 0
    assert f"folder: {deployment / 'sites' / 'oslo'}" in output
    assert f"pacfl deploy up {deployment}" in output
    _, output = invoke("deploy", "rekey", deployment, "oslo", "--json")
    found = json.loads(output)
    assert found["fingerprint"] == fingerprint(public(deployment, "oslo"))
    assert len(found["former"]) == 1
    _, output = invoke("deploy", "remove-site", deployment, "oslo", "--json")
    assert json.loads(output)["former"] == [found["fingerprint"]]


# Whom sites trust in secure sums


def trusted(folder: Path, name: str) -> dict[str, str]:
    return read_trusted(folder / "sites" / name / trust.FILE)


def keys_of(folder: Path, *names: str) -> dict[str, str]:
    return {fingerprint(public(folder, name)): name for name in names}


def test_sites_of_a_deployment_trust_each_other_whoever_comes_and_goes(deployment: Path) -> None:
    assert trusted(deployment, "lyon") == keys_of(deployment, "graz", "lyon")
    sites.add(deployment, "oslo")
    assert trusted(deployment, "lyon") == trusted(deployment, "oslo") == keys_of(deployment, "graz", "lyon", "oslo")
    sites.rekey(deployment, "graz")
    assert trusted(deployment, "lyon") == keys_of(deployment, "graz", "lyon", "oslo")
    sites.remove(deployment, "oslo")
    assert trusted(deployment, "lyon") == keys_of(deployment, "graz", "lyon")


def secure(folder: Path, on: bool = True) -> None:
    """Switch secure sums on, in an app that is approved."""
    app = folder / "app" / "pyproject.toml"
    app.write_text(app.read_text() + f"[tool.flwr.app.config.aggregation]\nsecure = {str(on).lower()}\n")
    layout.approve(folder, approval.build(app.parent))


def test_with_secure_sums_other_sites_are_to_trust_a_new_key(deployment: Path, tmp_path: Path) -> None:
    """Where their folders are elsewhere; those of one machine are written by the command."""
    alone = tmp_path / "server"
    for on in (False, True):
        app = deployment / "app" / "pyproject.toml"
        app.write_text(app.read_text().partition("[tool.flwr.app.config.aggregation]")[0])
        secure(deployment, on)
        shutil.copytree(deployment / "server", alone, dirs_exist_ok=True)
        done = sites.rekey(alone, "graz", own_key(tmp_path / f"graz-{on}"))
        step = f"pacfl deploy trust . graz {done.fingerprint}"
        assert any(step in one for one in done.next_steps) == on
        done = sites.add(alone, f"oslo-{on}", own_key(tmp_path / f"oslo-{on}"))
        assert any(f"pacfl deploy trust . oslo-{on} {done.fingerprint}" in one for one in done.next_steps) == on
    assert sites.rekey(deployment, "lyon").next_steps == ()
    (alone / approval.LAST).unlink()
    done = sites.rekey(alone, "graz", own_key(tmp_path / "unknown"))
    assert "pacfl deploy trust" in done.next_steps[-1], "it is not known whether sums are secure"


def test_a_site_trusts_the_key_that_its_operator_gives(deployment: Path, tmp_path: Path) -> None:
    key = own_key(tmp_path / "own")
    site = deployment / "sites" / "lyon"
    code, shown = invoke("deploy", "trust", str(site), "oslo", str(key), "--json")
    assert code == 0
    done = json.loads(shown)
    assert trusted(deployment, "lyon")[done["fingerprint"]] == "oslo"
    other = fingerprint(public(deployment, "graz"))
    assert trust.add(site, "oslo", other) == other  # another key of the same name takes its place
    assert trusted(deployment, "lyon") == {fingerprint(public(deployment, "lyon")): "lyon", other: "oslo"}
    assert stat.S_IMODE((site / trust.FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("key", ["SHA256:short", "no-such-file", ""])
def test_what_is_no_key_is_not_trusted(key: str, deployment: Path) -> None:
    before = trusted(deployment, "lyon")
    with pytest.raises(DeployError, match="expected the file of a public key, or a fingerprint"):
        trust.add(deployment / "sites" / "lyon", "oslo", key)
    assert trusted(deployment, "lyon") == before
    with pytest.raises(DeployError, match="is not the folder of a site"):
        trust.add(deployment, "oslo", key)
