"""The page as a page: widths, themes, keyboard."""

from __future__ import annotations

import pytest

from tests.e2e.figure import Figure

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("width", [360, 390, 820, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_at_any_width(tiny, page, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    figure = Figure(page, tiny).opened()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter((node) => {
          const box = node.getBoundingClientRect();
          const hidden = node.closest(".hidden, [hidden], .scroller, details:not([open])");
          return !hidden && box.width && box.height && (box.right > innerWidth + 0.5 || box.left < -0.5);
        }).map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert cut == []
    small = figure.ask(
        """[...f.querySelectorAll("svg.memory text")].filter((text) => text.textContent)
             .map((text) => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a).filter((px) => px < 10.95)"""
    )
    assert small == []


def test_everything_is_reached_by_tab_and_tab_leaves(tiny, open_figure):
    figure: Figure = open_figure(tiny)
    page = figure.page
    page.evaluate("() => { document.activeElement?.blur(); scrollTo(0, 0); }")
    seen = []
    for _ in range(80):
        page.keyboard.press("Tab")
        spot = page.evaluate(
            """() => {
              const node = document.activeElement;
              if (!node || node === document.body) return null;
              const style = getComputedStyle(node);
              const shown = style.outlineStyle !== "none" || style.boxShadow !== "none"
                || getComputedStyle(node.nextElementSibling ?? node).outlineStyle !== "none"
                || node.matches("[data-block], input[type=range], input[type=text]");
              return { name: node.getAttribute("aria-label") ?? node.textContent.trim() ?? "", tag: node.tagName,
                type: node.type ?? "", inside: Boolean(node.closest("paged-block-table")), shown };
            }"""
        )
        if spot is None:
            break
        seen.append(spot)
    inside = [spot for spot in seen if spot["inside"]]
    assert spot is None or not seen[-1]["inside"], "Tab never leaves the figure"
    names = " ".join(spot["name"] for spot in inside)
    for wanted in ("Back one event", "Play", "On one event", "Event", "Speed"):
        assert wanted in names
    kinds = {(spot["tag"], spot["type"]) for spot in inside}
    assert {("INPUT", "text"), ("INPUT", "radio"), ("INPUT", "range"), ("SELECT", "select-one")} <= kinds
    assert all(spot["shown"] for spot in inside), [spot for spot in inside if not spot["shown"]]


def test_the_transport_works_by_keyboard_alone(tiny, open_figure):
    figure: Figure = open_figure(tiny)
    scrubber = figure.page.locator(".scrub input")
    scrubber.focus()
    end = figure.drawn()["position"]
    for key, moved in [("ArrowLeft", -1), ("ArrowLeft", -2), ("ArrowRight", -1), ("Home", -end), ("End", 0)]:
        figure.page.keyboard.press(key)
        assert figure.drawn()["position"] == end + moved, key
    figure.page.keyboard.press("PageDown")
    assert figure.drawn()["position"] < end
    figure.page.keyboard.press("PageUp")
    assert figure.drawn()["position"] == end


def test_reduced_motion_moves_nothing(tiny, page):
    page.emulate_media(reduced_motion="reduce")
    figure = Figure(page, tiny).opened()
    moving = figure.ask(
        """[...f.querySelectorAll("*")].filter((node) => {
             const { transitionDuration, animationDuration } = getComputedStyle(node);
             return `${transitionDuration},${animationDuration}`.split(",").some((s) => parseFloat(s) > 0.001);
           }).map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert moving == []


def test_the_page_makes_no_frame_while_nothing_changes(tiny, open_figure):
    figure: Figure = open_figure(tiny)
    figure.page.evaluate(
        """() => {
          window.frames_asked = 0;
          const ask = window.requestAnimationFrame.bind(window);
          window.requestAnimationFrame = (done) => { window.frames_asked += 1; return ask(done); };
        }"""
    )
    figure.page.wait_for_timeout(1500)
    assert figure.page.evaluate("() => window.frames_asked") <= 1


def test_own_code_keeps_to_its_budget(tiny, page):
    """At most 100 kB of our JavaScript, 25 kB of CSS, 300 kB for the first load, compressed."""
    weights: dict[str, int] = {}

    def weigh(response):
        sizes = response.request.sizes()
        kind = response.request.resource_type
        weights[kind] = weights.get(kind, 0) + sizes["responseBodySize"]

    responses = []
    page.on("response", lambda response: responses.append(response))
    Figure(page, tiny).opened()
    for response in responses:
        if "/ws/" not in response.url:
            weigh(response)
    assert 10_000 < weights["script"] < 100_000
    assert 2_000 < weights["stylesheet"] < 25_000
    assert sum(weights.values()) < 300_000
