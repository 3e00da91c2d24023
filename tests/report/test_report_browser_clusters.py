"""Clusters in a real browser: the slider, the map of angles, who is with whom."""

from pathlib import Path

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster

from pacfl.report.gather import gather
from tests.report.browser import Open, choose, drawn, slide
from tests.report.folders import write_run


def betas(merges: np.ndarray) -> list[float]:
    heights = np.unique(merges[:, 2])
    return [0.0, *((heights[1:] + heights[:-1]) / 2).tolist(), heights[-1] * 1.03]


def test_the_slider_gives_scipys_clusters_at_every_beta(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.grouped and run.seed == 0)
    assert run.grouped is not None
    page = opened(small)
    counts = {}
    for beta in betas(run.grouped.merges):
        expected = fcluster(run.grouped.merges, beta, "distance")
        assert slide(page, beta) == len(set(expected)), beta
        members = page.execute_script(
            "return [...document.querySelectorAll('#cluster-list tbody tr')].map(r => r.cells[3].textContent)"
        )
        ours = {frozenset(map(int, text.split(", "))) for text in members}
        theirs = {frozenset(run.grouped.clients[expected == k].tolist()) for k in set(expected)}
        assert ours == theirs, beta
        counts[beta] = len(theirs)
    assert (min(counts.values()), max(counts.values())) == (1, 24)


def test_the_chosen_beta_is_where_it_starts_and_comes_back_to(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.grouped and run.seed == 0)
    assert run.grouped is not None
    page = opened(small)
    shown = "return Number(document.getElementById('beta-number').value)"
    assert page.execute_script(shown) == pytest.approx(run.grouped.threshold)
    assert page.execute_script("return document.getElementById('count').textContent") == "4 clusters"
    page.execute_script("document.getElementById('fewer').click()")
    assert page.execute_script("return document.getElementById('count').textContent") == "3 clusters"
    for _ in range(3):
        page.execute_script("document.getElementById('more').click()")
    assert page.execute_script("return document.getElementById('count').textContent") == "6 clusters"
    page.execute_script("document.getElementById('chosen').click()")
    assert page.execute_script(shown) == pytest.approx(run.grouped.threshold)
    assert (
        page.execute_script("return document.getElementById('reasons').textContent") == run.grouped.evidence["reasons"]
    )


def test_clusters_are_coloured_and_those_that_are_not_split_keep_their_colour(opened: Open, small: Path) -> None:
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


def test_hovering_tells_client_cluster_size_and_angle(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.grouped and run.seed == 0)
    assert run.grouped is not None
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
    assert float(angle.split("°")[0]) == pytest.approx(run.grouped.proximity[a, b], abs=0.01)


def test_newcomers_and_their_panel_are_shown(opened: Open, small: Path) -> None:
    page = opened(small)
    drawn(page, "clusters")
    assert page.execute_script("return document.querySelector('[data-newcomers]').dataset.newcomers") == "4"
    assert "4 came later" in page.execute_script("return document.getElementById('bridges').textContent")
    choose(page, "client", "23")
    assert "newcomer" in page.execute_script("return document.getElementById('client-facts').textContent")
    drawn(page, "labels")


def test_a_bridge_is_told(opened: Open, tmp_path: Path) -> None:
    """Clients 0, 1 | 2, 3 stand 20 degrees apart; newcomer 4 is 5 from the first, 6 from the others; cut at 8."""
    square = np.array([[0, 1, 20, 20, 5], [1, 0, 20, 20, 5], [20, 20, 0, 1, 6], [20, 20, 1, 0, 6], [5, 5, 6, 6, 0.0]])
    write_run(tmp_path / "runs", {"name": "pacfl"}, 0, 5, newcomers=1, square=square, threshold=8.0)
    page = opened(tmp_path / "runs")
    told = page.execute_script("return document.querySelector('#bridges li').textContent")
    assert told == "client 4 is 5.00° from cluster 0 and 6.00° from cluster 1 of the run"


def test_a_clicked_client_is_the_one_of_the_panel(opened: Open, small: Path) -> None:
    run = next(run for run in gather([str(small)], small).runs if run.grouped and run.seed == 0)
    assert run.grouped is not None
    page = opened(small)
    drawn(page, "clusters")
    page.execute_script("""
        const image = document.querySelector('[data-figure=clusters] image').getBoundingClientRect();
        const at = {clientX: image.left + 10.5 * image.width / 24, clientY: image.top + 5, bubbles: true};
        document.querySelector('[data-figure=clusters] svg').dispatchEvent(new MouseEvent('click', at));""")
    client = int(page.execute_script("return document.getElementById('client').value"))
    nearest = page.execute_script("return document.querySelector('#neighbours tbody tr').textContent")
    others = np.where(np.arange(24) == client, np.inf, run.grouped.proximity[client])
    assert f"client {others.argmin()}" in nearest
    assert f"{others.min():.2f}" in nearest
    shown = page.execute_script("""return [...document.querySelectorAll('#under-each tbody tr')]
        .map(r => [r.cells[0].textContent, r.cells[1].textContent])""")
    runs = {run.algorithm: run for run in gather([str(small)], small).runs if run.seed == 0}
    assert {name for name, _ in shown} == set(runs)
    for name, accuracy in shown:
        expected = runs[name].accuracy["received"][client]
        assert accuracy == ("\u2013" if np.isnan(expected) else f"{100 * np.float32(expected):.1f}")
