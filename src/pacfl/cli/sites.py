"""The life of a deployment's sites: deploy add-site, remove-site, rekey, renew-certificate, check."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacfl.cli.console import AsJson, out
from pacfl.cli.deploy import deploy, needs_flower

if TYPE_CHECKING:
    from pacfl.flower.deploy.sites import Outcome

Place = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment, or of its server alone.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the site.")]
Key = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="The node.pub of a site that makes its key itself.")
]


@deploy.command("add-site")
def add_site(folder: Place, name: Name, key: Key = None, as_json: AsJson = False) -> None:
    """Make the folder of another site and register its key. A site that was removed returns as the same client."""
    with needs_flower():
        from pacfl.flower.deploy import sites
    _show("added", sites.add(folder, name, key), as_json)


@deploy.command("remove-site")
def remove_site(folder: Place, name: Name, as_json: AsJson = False) -> None:
    """Unregister a site, and wait for it no more. Its cluster retains what it learned; add-site lets it return."""
    with needs_flower():
        from pacfl.flower.deploy import sites
    _show("removed", sites.remove(folder, name), as_json)


@deploy.command()
def rekey(folder: Place, name: Name, key: Key = None, as_json: AsJson = False) -> None:
    """Give a site another key. It remains the same client, with its cluster and memory; the former key is refused."""
    with needs_flower():
        from pacfl.flower.deploy import sites
    _show("another key for", sites.rekey(folder, name, key), as_json)


@deploy.command()
def trust(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the site that is to trust.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The site that is trusted.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its node.pub, or its fingerprint: SHA256:...")],
    as_json: AsJson = False,
) -> None:
    """With secure aggregation, let a site be in sums with another one, whose key was compared over another channel."""
    with needs_flower():
        from pacfl.flower.deploy import trust as lists
    found = lists.add(folder, name, key)
    if as_json:
        print(json.dumps({"name": name, "fingerprint": found, "file": str(folder / lists.FILE)}))
        return
    out.print(f"{folder} trusts {name}: {found}", highlight=False, markup=False, soft_wrap=True)


@deploy.command("renew-certificate")
def renew_certificate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a deployment, or of a server or a site.")],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="server, or a site; executor in the folder of a site alone.")
    ],
    authority: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder with ca.key, if it is not beside the server's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Renew the certificate of the server, or of the executor of a site. Other sites need no change."""
    with needs_flower():
        from pacfl.flower.deploy import renewal
    done = renewal.renew(folder, name, authority)
    if as_json:
        print(json.dumps({**asdict(done), "file": str(done.file), "ends": done.ends.isoformat()}))
        return
    out.print(f"{done.file}: until {done.ends:%Y-%m-%d}; {done.next_step}", highlight=False, soft_wrap=True)


@deploy.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a site.")], as_json: AsJson = False
) -> None:
    """Look at a site before its first round: data, model, disk, server, clock, versions. Exit code 1: a problem."""
    with needs_flower():
        from pacfl.flower.deploy.check import check as check_site
    found = check_site(folder)
    problems = sum(one.level == "problem" for one in found)
    if as_json:
        print(json.dumps({"problems": problems, "checks": [asdict(one) for one in found]}))
    else:
        for one in found:
            out.print(f"{one.level:8} {one.item}: {one.what}", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(1 if problems else 0)


def _show(what: str, done: "Outcome", as_json: bool) -> None:
    if as_json:
        print(json.dumps({**asdict(done), "folder": None if done.folder is None else str(done.folder)}))
        return
    lines = [f"{what} {done.name}"]
    lines += [f"key: {done.fingerprint}"] if done.fingerprint else []
    lines += [f"refused from now on: {key}" for key in done.former]
    lines += [f"folder: {done.folder}"] if done.folder else []
    lines += [f"next: {step}" for step in done.next_steps]
    for line in lines:
        out.print(line, highlight=False, markup=False, soft_wrap=True)
