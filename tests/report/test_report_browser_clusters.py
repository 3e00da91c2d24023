"""Clusters in a real browser: the slider, the heat map, the members of each cluster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster

from pacfl.report.gather import gather
from pacfl.signatures import folder as folders
from pacfl.signatures.federation import join
from pacfl.signatures.lifecycle import leave, replace_client
from tests.report.browser import Open, choose, drawn, saved, slide
from tests.report.folders import write_federation, write_labelled_federation, write_run
from tests.signatures.test_federation import client
from tests.signatures.test_lifecycle import three_groups


def betas(merges: np.ndarray) -> list[float]:
    heights = np.unique(merges[:, 2])
    return [0.0, *((heights[1:] + heights[:-1]) / 2).tolist(), heights[-1] * 1.03]


def test_the_slider_gives_scipys_clusters_at_every_beta(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.clustering and run.seed == 0)
    assert run.clustering is not None
    page = opened(small)
    counts = {}
    for beta in betas(run.clustering.compared.merges):
        expected = fcluster(run.clustering.compared.merges, beta, "distance")
        assert slide(page, beta) == len(set(expected)), beta
        members = page.execute_script(
            "return [...document.querySelectorAll('#cluster-list tbody tr')].map(r => r.cells[3].textContent)"
        )
        ours = {frozenset(map(int, text.split(", "))) for text in members}
        theirs = {frozenset(run.clustering.clients[expected == k].tolist()) for k in set(expected)}
        assert ours == theirs, beta
        counts[beta] = len(theirs)
    assert (min(counts.values()), max(counts.values())) == (1, 24)


def test_the_slider_starts_at_the_chosen_beta_and_returns_to_it(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.clustering and run.seed == 0)
    assert run.clustering is not None
    page = opened(small)
    shown = "return Number(document.getElementById('beta-number').value)"
    assert page.execute_script(shown) == pytest.approx(run.clustering.clustering.threshold)
    assert page.execute_script("return document.getElementById('count').textContent") == "4 clusters"
    page.execute_script("document.getElementById('fewer').click()")
    assert page.execute_script("return document.getElementById('count').textContent") == "3 clusters"
    for _ in range(3):
        page.execute_script("document.getElementById('more').click()")
    assert page.execute_script("return document.getElementById('count').textContent") == "6 clusters"
    page.execute_script("document.getElementById('chosen').click()")
    assert page.execute_script(shown) == pytest.approx(run.clustering.clustering.threshold)
    assert (
        page.execute_script("return document.getElementById('reasons').textContent")
        == run.clustering.clustering.evidence["reasons"]
    )


def test_clusters_that_are_not_split_do_not_change_colour(opened: Open, small: Path) -> None:
    page = opened(small)
    drawn(page, "clusters")
    chips = "return [...document.querySelectorAll('#cluster-list .chip')].map(c => c.style.background)"
    before = page.execute_script(chips)
    assert len(set(before)) == 4
    page.execute_script("document.getElementById('more').click()")
    after = page.execute_script(chips)
    assert len(after) == 5
    assert set(before) < set(after)
    strips = page.execute_script(
        "return [...document.querySelectorAll('[data-figure=clusters] svg g path')].map(p => p.getAttribute('stroke'))"
    )
    assert set(strips) - {None, "currentColor"}


def test_the_tooltip_names_client_cluster_size_and_angle(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.clustering and run.seed == 0)
    assert run.clustering is not None
    page = opened(small)
    drawn(page, "clusters")
    text = page.execute_script("""
        const image = document.querySelector('[data-figure=clusters] image').getBoundingClientRect();
        const cell = image.width / 24;
        const at = {clientX: image.left + 2.5 * cell, clientY: image.top + 20.5 * cell, bubbles: true};
        document.querySelector('[data-figure=clusters] svg').dispatchEvent(new PointerEvent('pointermove', at));
        return document.getElementById('tip').textContent""")
    first, second, angle = text.split("\n")
    a, b = (int(line.split(":")[0].removeprefix("client ")) for line in (first, second))
    assert "of 6 clients" in first
    assert f"{run.clients.train[a]} samples" in first
    assert float(angle.split("°")[0]) == pytest.approx(run.clustering.clustering.proximity[a, b], abs=0.01)


def test_newcomers_and_their_panel_are_shown(opened: Open, small: Path) -> None:
    page = opened(small)
    drawn(page, "clusters")
    assert page.execute_script("return document.querySelector('[data-newcomers]').dataset.newcomers") == "4"
    assert "4 joined later" in page.execute_script("return document.getElementById('merge-suggestions').textContent")
    choose(page, "client", "23")
    assert "newcomer" in page.execute_script("return document.getElementById('client-facts').textContent")
    drawn(page, "labels")


def test_a_merge_that_a_newcomer_suggests_is_shown(opened: Open, tmp_path: Path) -> None:
    """Clients 0, 1 | 2, 3 are 20 degrees apart; newcomer 4 is 5 from the first, 6 from the others; cut at 8."""
    square = np.array([[0, 1, 20, 20, 5], [1, 0, 20, 20, 5], [20, 20, 0, 1, 6], [20, 20, 1, 0, 6], [5, 5, 6, 6, 0.0]])
    write_run(tmp_path / "runs", {"name": "pacfl"}, 0, 5, newcomers=1, square=square, threshold=8.0)
    page = opened(tmp_path / "runs")
    text = page.execute_script("return document.querySelector('#merge-suggestions li').textContent")
    assert text == "client 4 is 5.00° from cluster 0 and 6.00° from cluster 1 of the run"


def test_who_came_left_or_drifted_is_shown_with_the_numbers_of_the_federation(opened: Open, tmp_path: Path) -> None:
    """Of clusters 0, 1 and 2, all of 1 left; one newcomer is near both others, one copied a signature, one drifted."""
    folder = tmp_path / "sites"
    folder.mkdir()
    before = leave(three_groups(), three_groups().clusters()[1])
    after = join(before, {"late": client(2, 70), "twin": client(0, 2)}).federation
    near = replace(after.newcomers["late"], merge=True, runner_up=0)
    after = replace(after, newcomers={**after.newcomers, "late": near})
    after = replace_client(after, "g0-1", client(2, 71)).federation
    folders.save(after, folder)
    page = opened(folder)
    drawn(page, "clusters")
    text = page.execute_script("return document.querySelector('section').innerText")
    assert "12 clients clustered; 2 joined and 4 left since." in text
    assert "twin: its signature is nearer to that of g0-2" in text
    assert "g0-1 drifted: " in text
    assert "now it fits cluster 2" in text
    assert "10 clients in 2 clusters" in text
    assert page.execute_script("return document.querySelector('[data-newcomers]').dataset.newcomers") == "2"
    placements = page.execute_script("return [...document.querySelectorAll('#placements li')].map(l => l.innerText)")
    assert placements == [f"{name} {one.words()}" for name, one in after.newcomers.items()]
    (merge,) = page.execute_script("return [...document.querySelectorAll('#merges li')].map(l => l.innerText)")
    assert merge.startswith("late is ")
    assert "times the noise from cluster 2 and " in merge
    assert merge.endswith("times the noise from cluster 0 of the federation")
    assert set(listed(page)) == {"0", "2"}
    differs = page.execute_script("return document.getElementById('differs').textContent")
    assert differs.startswith("1 client is in another cluster of the federation than this cut puts it in")
    assert page.execute_script("return [...document.getElementById('pair-a').options].map(o => o.value)") == ["0", "2"]
    strips = page.execute_script("""
        const groups = [...document.querySelectorAll('[data-figure=clusters] svg g')];
        return groups.filter(g => g.querySelector('path[fill]'))
            .map(g => [...g.querySelectorAll('path')].map(p => p.getAttribute('fill')).sort().join());""")
    assert len(set(strips)) == 1  # the cut and what is stored have the same colours


def test_a_clicked_client_is_the_one_of_the_panel(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.clustering and run.seed == 0)
    assert run.clustering is not None
    page = opened(small)
    drawn(page, "clusters")
    page.execute_script("""
        const image = document.querySelector('[data-figure=clusters] image').getBoundingClientRect();
        const at = {clientX: image.left + 10.5 * image.width / 24, clientY: image.top + 5, bubbles: true};
        document.querySelector('[data-figure=clusters] svg').dispatchEvent(new MouseEvent('click', at));""")
    client = int(page.execute_script("return document.getElementById('client').value"))
    nearest = page.execute_script("return document.querySelector('#neighbours tbody tr').textContent")
    others = np.where(np.arange(24) == client, np.inf, run.clustering.clustering.proximity[client])
    assert f"client {others.argmin()}" in nearest
    assert f"{others.min():.2f}" in nearest
    shown = page.execute_script("""return [...document.querySelectorAll('#under-each tbody tr')]
        .map(r => [r.cells[0].textContent, r.cells[1].textContent])""")
    runs = {run.algorithm: run for run in gather([str(small)], small).runs if run.seed == 0}
    assert {name for name, _ in shown} == set(runs)
    for name, accuracy in shown:
        expected = runs[name].scores["received"][client]
        assert accuracy == ("-" if np.isnan(expected) else f"{100 * np.float32(expected):.1f}")


def listed(page: Any) -> dict[str, set[str]]:
    rows = page.execute_script(
        """return [...document.querySelectorAll('#cluster-list tbody tr')]
            .map(r => [r.cells[0].textContent, r.cells[3].textContent])"""
    )
    return {number: set(members.split(", ")) for number, members in rows}


def test_clusters_have_the_numbers_of_the_federation(opened: Open, tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", [f"hospital {i}" for i in range(9)])
    page = opened(folder)
    stored = folders.load(folder).clusters()
    assert listed(page) == {str(k): set(names) for k, names in enumerate(stored)}
    assert list(listed(page)) == ["0", "1", "2"]
    choose(page, "client", "7")
    facts = page.execute_script("return document.getElementById('client-facts').textContent")
    assert "cluster 1 with 2 others. In the federation it is in cluster 1." in facts


def test_clusters_have_the_numbers_of_the_run_and_other_cuts_number_on(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.clustering and run.seed == 0)
    page = opened(small)
    stored = {str(k): {str(c) for c in np.flatnonzero(run.cluster_of == k)} for k in np.unique(run.cluster_of).tolist()}
    assert listed(page) == stored
    page.execute_script("document.getElementById('more').click()")
    split = listed(page)
    assert list(split) == ["0", "1", "2", "3", "4"]
    assert sum(split[k] == members for k, members in stored.items()) == 3
    (parent,) = (k for k, members in stored.items() if split[k] != members)
    assert split[parent] | split["4"] == stored[parent]
    assert len(split[parent]) >= len(split["4"])


@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_the_axes_of_the_heat_map_name_the_clients_in_its_order(opened: Open, tmp_path: Path, axis: str) -> None:
    names = [f"hospital {i}" for i in range(8)] + ["the hospital with a very long name 8"]
    page = opened(write_federation(tmp_path / "hospitals", names))
    drawn(page, "clusters")
    shown = page.execute_script(
        f"return [...document.querySelectorAll('[data-axis={axis}] text')].map(t => t.textContent)"
    )
    order = [line.split(",")[2] for line in saved(page, "clusters", "CSV of clusters").decode().splitlines()[1:]]
    assert shown == ["the hospita…ong name 8" if name.endswith("name 8") else name for name in order]
    assert sorted(order) == sorted(names)


@pytest.mark.parametrize(("n", "labels"), [(100, 100), (150, 75)])
def test_the_axes_name_a_hundred_clients_and_of_more_as_many_as_there_is_room_for(
    opened: Open, tmp_path: Path, n: int, labels: int
) -> None:
    write_run(tmp_path / "runs", {"name": "pacfl"}, 0, n)
    page = opened(tmp_path / "runs")
    drawn(page, "clusters")
    for axis, at in (("rows", "y"), ("columns", "x")):
        shown = page.execute_script(
            f"return [...document.querySelectorAll('[data-axis={axis}] text')]"
            f".map(t => [t.textContent, +t.getAttribute('{at}'), parseFloat(getComputedStyle(t).fontSize)])"
        )
        names, places, fonts = zip(*shown, strict=True)
        assert len(names) == len(set(names)) == labels
        assert set(names) <= {str(c) for c in range(n)}
        assert min(np.diff(places)) > min(fonts) >= 8  # none covers another


@pytest.mark.parametrize(
    ("stored", "row", "note"),
    [
        ({}, "unknown", ""),
        ({"guaranteed": True}, "yes", ""),
        (
            {"guaranteed": False, "not_guaranteed_because": "more than 300 clients"},
            "no",
            "The stated rate of false splits is not guaranteed here: more than 300 clients",
        ),
        (
            {"guaranteed": False, "not_guaranteed_because": None},
            "no",
            "The stated rate of false splits is not guaranteed here: no reason is stored",
        ),
    ],
)
def test_the_evidence_says_whether_it_is_guaranteed_and_why_not(
    opened: Open, tmp_path: Path, stored: dict[str, Any], row: str, note: str
) -> None:
    write_run(tmp_path / "runs", {"name": "pacfl"}, 0, 12, evidence={"guaranteed": None, **stored})
    page = opened(tmp_path / "runs")
    table = page.execute_script(
        "return [...document.querySelectorAll('#evidence tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert dict(table)["guaranteed"] == row
    assert page.execute_script("return document.getElementById('not-guaranteed').innerText.trim()") == note


def test_how_clusters_differ_is_said_first_and_shown_for_the_chosen_pair(opened: Open, tmp_path: Path) -> None:
    folder = write_labelled_federation(tmp_path / "sites")
    stored = folders.load(folder)
    page = opened(folder)
    text = "return document.getElementById(arguments[0]).innerText"
    assert page.execute_script(text, "diagnosis") == stored.diagnosis.words
    first, second = page.execute_script("return [...document.querySelectorAll('section p')].map(p => p.innerText)")[:2]
    assert first == stored.answer
    assert first.startswith("Two groups: site 0, site 2, site 4, site 6 and site 1, site 3")
    assert second == stored.diagnosis.words
    assert page.execute_script(text, "pair-words") == stored.explain(0, 1, "clusters").words
    assert page.execute_script(text, "pair-kind") == "concept: learn apart"
    rows = "return [...document.querySelectorAll('#pair-table tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    assert sorted(row[:2] for row in page.execute_script(rows)) == [["0", "1"], ["1", "0"]]
    drawn(page, "difference")
    lines = saved(page, "difference", "CSV").decode().splitlines()
    assert lines[0] == "a,b,row,column,of_largest,run"
    assert len(lines) == 1 + 16
    assert max(float(line.split(",")[4]) for line in lines[1:]) == 1.0


def test_the_pair_of_clusters_is_chosen(opened: Open, tmp_path: Path) -> None:
    folder = write_federation(tmp_path / "hospitals", [f"hospital {i}" for i in range(9)])
    page = opened(folder)
    stored = folders.load(folder)
    for a, b in ((1, 2), (2, 0)):
        choose(page, "pair-a", str(a))
        choose(page, "pair-b", str(b))
        words = page.execute_script("return document.getElementById('pair-words').innerText")
        assert words == stored.explain(min(a, b), max(a, b), "clusters").words
    drawn(page, "difference")
    lines = saved(page, "difference", "CSV").decode().splitlines()
    assert lines[0] == "a,b,feature,percent,times_noise,factor,run"


def test_runs_without_signatures_show_no_difference_of_clusters(opened: Open, small: Path) -> None:
    assert opened(small).execute_script("return document.getElementById('difference').hidden")


def test_clients_in_no_cluster_are_marked(opened: Open, tmp_path: Path) -> None:
    page = opened(write_labelled_federation(tmp_path / "sites"))
    drawn(page, "clusters")
    assert page.execute_script("return document.querySelector('[data-in-no-cluster]').dataset.inNoCluster") == "1"
    assert list(listed(page)) == ["0", "1", "none"]
    assert listed(page)["none"] == {"small site ✕"}
    assert page.execute_script("return document.getElementById('count').textContent") == "2 clusters"
    caption = page.execute_script("return document.querySelector('[data-figure=clusters] figcaption').innerText")
    assert "✕: 1 cannot be judged and is in no cluster of the federation. Blank cells" in caption
    choose(page, "client", "8")
    assert "in no cluster" in page.execute_script("return document.getElementById('client-facts').innerText")
    assert page.execute_script("return document.querySelectorAll('#neighbours tbody tr').length") == 0
