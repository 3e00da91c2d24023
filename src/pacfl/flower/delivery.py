"""Delivery of models: a site stores its cluster's and its personal model when it is evaluated with personalisation.

That is at the end of a federation, and whenever the operator of the server asks for it.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pacfl.data.preprocessing import Preprocessing
from pacfl.errors import MissingLibraryError, ModelError
from pacfl.exporting.folder import Manifest, ModelOf, write_folder
from pacfl.exporting.formats import FormatName
from pacfl.exporting.site_key import FINGERPRINT, check_site
from pacfl.federation.client_side import ClientSide
from pacfl.federation.label_prior import CLASS_SHARES
from pacfl.federation.message import ClientId, Message
from pacfl.federation.rounds import Score
from pacfl.learning.client_context import SampleSubset
from pacfl.learning.losses import find_loss
from pacfl.learning.mixture import evaluate, module

log = logging.getLogger("pacfl")

REQUEST: Final = "deliver"  # a file in the server's folder of the federation
FORMATS: Final[tuple[FormatName, ...]] = ("torch", "safetensors")  # the first that can hold the model


def request(federation: Path) -> None:
    """Ask the server for a delivery to all sites: before its next round, or when it is started again."""
    (federation / REQUEST).touch()


def requested(federation: Path, take: bool = False) -> bool:
    """Whether a delivery was asked for; take: it is done, forget the request."""
    asked = (federation / REQUEST).exists()
    if asked and take:
        (federation / REQUEST).unlink()
    return asked


def deliver(
    folder: Path,
    federation: str,
    name: str,
    side: ClientSide,
    t: int,
    client: ClientId,
    down: Message,
    memory: Message,
    scores: Mapping[str, Score],
    key: str | None = None,
) -> bool:
    """Store the two models of a client in the folder of its site, as `pacfl export` writes them; whether it worked.

    They take samples as the site's load_data returns them. name: of the client, in the files; key: the fingerprint for
    which the server made them, if it says so. Another site than the one with this key refuses them.
    """
    own = {} if key is None else {FINGERPRINT: key}
    check_site(folder, name, {name: own})
    train = side.pool.train
    preprocessing = Preprocessing(train.x.shape[1:], "int64" if train.x.dtype.kind == "i" else "float32", "input")
    received, personal = (model(t, client, down, memory) for model in (side.received, side.personal))
    loss = find_loss(side.learning.loss)
    one = SampleSubset(train, side.pool.client_indices[client].train[:1])
    outputs, _ = evaluate(side.engine, received, one, loss)
    models = [
        ModelOf(stem, module(side.model, w, loss.targets), preprocessing, None, name, personal=stem == "personal")
        for stem, w in (("cluster", received), ("personal", personal))
    ]
    manifest = Manifest(
        format="torch",
        run=None,
        algorithm=type(side.algorithm).__name__,
        data=federation,
        targets=loss.targets,
        outputs=tuple(map(str, range(outputs.shape[1]))),
        model=None,
        clients={name: own},
    )
    table = _table(side.metrics.primary, scores)
    for form in FORMATS:
        try:
            card = _card(manifest, t, preprocessing, table, CLASS_SHARES in down)
            write_folder(models, replace(manifest, format=form), card, folder, force=True)
        except (ModelError, MissingLibraryError) as error:
            log.warning("%s: %s", folder, error)
        else:
            return True
    return False


def _table(primary: str, scores: Mapping[str, Score]) -> str:
    """The scores of models by protocol, in Markdown; a metric may be undefined for the samples of a site."""
    names = list(dict.fromkeys(name for score in scores.values() for name in score.metrics))
    rows = [["model", primary, "loss", *names], ["---"] * (3 + len(names))]
    for protocol, score in scores.items():
        others = (f"{score.metrics[name]:.4f}" if name in score.metrics else "undefined" for name in names)
        rows.append([protocol, f"{score.primary:.4f}", f"{score.loss:.4f}", *others])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _card(manifest: Manifest, t: int, preprocessing: Preprocessing, table: str, label_prior: bool) -> str:
    """The model card, with what a site knows of the federation."""
    corrected = ", corrected for the class shares of this site's training samples" if label_prior else ""
    return f"""# Models of federation {manifest.data}

The model of this site's cluster (`cluster`{corrected}), and the one personalised for this site (`personal`), trained by
{manifest.algorithm} with pacfl {manifest.pacfl}, as of round {t + 1}. They take samples of shape
{preprocessing.described()}, as load_data of this site returns them, and have {len(manifest.outputs)} outputs
({manifest.targets}).

On this site's test samples (*received*: the model of the cluster):

{table}"""
