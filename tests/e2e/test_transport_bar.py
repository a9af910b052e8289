"""The playback row stays in sight with the stage, and never lies on what is to be read or has the focus."""

from __future__ import annotations

import pytest

from tests.e2e.figure import Figure

pytestmark = pytest.mark.slow

SIZES = [(1280, 900), (390, 844)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_comes_up_only_with_the_stage_and_covers_neither_ticker_nor_heading(tiny, page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(reduced_motion="reduce")
    Figure(page, tiny).opened()
    seen = page.evaluate(
        """async () => {
          const box = (name) => document.querySelector(name).getBoundingClientRect();
          const top = box(".run").top + scrollY;
          const covered = [];
          let stuck = 0;
          for (let y = top - innerHeight; y < top + box(".run").height; y += 16) {
            scrollTo({ top: y, behavior: "instant" });
            await new Promise(requestAnimationFrame);
            const bar = box(".controls");
            if (Math.abs(bar.bottom - innerHeight) < 1) stuck += 1;
            for (const name of [".event", ".bt-head", ".stage h3"])
              if (box(name).bottom > bar.top + 0.5 && box(name).top < bar.bottom - 0.5) covered.push([name, y - top]);
          }
          return { covered, stuck };
        }"""
    )
    assert seen["covered"] == []
    assert seen["stuck"] >= 5


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_hides_nothing_that_tab_reaches(tiny, page, width, height):
    """WCAG 2.2, 2.4.11: where the focus goes, at least a part of it is in sight; here, all but a hand's breadth."""
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(reduced_motion="reduce")
    figure = Figure(page, tiny).opened()
    for key in ("Tab", "Shift+Tab"):
        if key == "Tab":
            page.evaluate("() => { document.activeElement?.blur(); scrollTo({ top: 0, behavior: 'instant' }); }")
        inside = 0
        for _ in range(60):
            page.keyboard.press(key)
            spot = page.evaluate(
                """() => new Promise((done) => requestAnimationFrame(() => {
                  const node = document.activeElement;
                  if (!node || node === document.body) return done(null);
                  const bar = document.querySelector("paged-block-table .controls");
                  const [rect, over] = [node.getBoundingClientRect(), bar.getBoundingClientRect()];
                  const free = bar.contains(node) || rect.top >= over.bottom ? innerHeight : Math.min(innerHeight, over.top);
                  const top = document.querySelector(".bar-top").offsetHeight;
                  done({
                    name: node.getAttribute("aria-label") ?? node.textContent.trim().slice(0, 40),
                    height: rect.height,
                    shown: Math.min(rect.bottom, free) - Math.max(rect.top, top),
                    inside: Boolean(node.closest("paged-block-table")),
                    top: Boolean(node.closest(".bar-top, .skip")),
                  });
                }))"""
            )
            if spot is None:
                break
            inside += spot["inside"]
            if not spot["top"]:
                assert spot["shown"] >= min(spot["height"], 40) - 1, (key, spot)
        assert inside >= 10, f"{key} went past {inside} controls of the figure"
    assert figure.ask("f.querySelector('.controls').offsetHeight") < 128


def test_it_is_not_printed_and_leaves_no_gap(tiny, page):
    figure = Figure(page, tiny).opened()
    page.emulate_media(media="print")
    assert figure.ask("['.controls', '.ask', '.more'].map((name) => f.querySelector(name).offsetHeight)") == [0, 0, 0]
    below = "f.getBoundingClientRect().bottom - f.querySelector('.stage').getBoundingClientRect().bottom"
    assert 0 <= figure.ask(below) <= 24
