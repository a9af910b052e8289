"""The block-table figure as the tests see it: what is drawn, and its controls."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

from engine.events import ArenaState
from tests.e2e.site import Site, wait

DRAWN = """() => {
  const figure = document.querySelector("paged-block-table");
  const session = figure.session;
  return {
    position: session.transport.position,
    table: [...figure.querySelectorAll("table.table tbody tr")].map((row) => [...row.cells].map((c) => c.textContent)),
    reads: [...figure.querySelectorAll(".log .lb:not(.next-block)")].map(
      (row) => [...row.querySelectorAll(".s:not(.held, .pending)")].map((s) => s.textContent)),
    memory: [...figure.querySelectorAll("svg.memory g[data-block]")].map((cell) => ({
      owned: cell.classList.contains("owned"),
      full: cell.querySelectorAll(".slot.full").length,
      slots: cell.querySelectorAll(".slot").length,
      words: cell.getAttribute("aria-label"),
    })),
  };
}"""


class Figure:
    def __init__(self, page: Page, site: Site) -> None:
        self.page = page
        page.goto(site.url)
        page.locator("paged-block-table").scroll_into_view_if_needed()

    def opened(self) -> Figure:
        """Wait until the opening scene has been played: the first request is prefilled and the arena paused."""
        wait(lambda: self.ask("f.session?.kind === 'live' && f.session.set && f.source.client.attached"), "the scene")
        wait(lambda: "paused" in (self.page.locator(".controls .live").text_content() or ""), "the pause")
        return self

    def ask(self, expression: str) -> Any:
        """Evaluate JavaScript in which ``f`` is the figure."""
        return self.page.evaluate(
            f"() => {{ const f = document.querySelector('paged-block-table'); return {expression}; }}"
        )

    @property
    def secret(self) -> str:
        return str(self.ask("f.source.client.secret"))

    @property
    def label(self) -> str:
        return self.page.locator("paged-block-table .source .words").text_content() or ""

    def drawn(self) -> dict[str, Any]:
        # Two frames: the figure draws in the frame after a change.
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return dict(self.page.evaluate(DRAWN))

    def seek(self, position: int) -> None:
        """Move the scrubber as a hand does."""
        self.page.locator(".scrub input").evaluate(
            "(input, to) => { input.value = to; input.dispatchEvent(new Event('input', { bubbles: true })); }", position
        )

    def end_of(self, seq: int) -> int | None:
        """Position after envelope ``seq`` in the page's log, or None where it is not there."""
        return self.ask(f"f.session.log.marks.find((mark) => mark.seq === {seq})?.end ?? null")

    def send(self, prompt: str, tokens: int) -> None:
        self.page.get_by_label("Prompt", exact=True).fill(prompt)
        self.page.get_by_label("at most").select_option(str(tokens))
        self.page.locator("paged-block-table button.send").click()


def expect_drawn(drawn: dict[str, Any], state: ArenaState, request: int) -> None:
    """What is drawn equals the engine's state: the request's table, and every physical block."""
    sequence = next((s for s in state.sequences if s.request == request), None)
    blocks = {block.block: block for block in state.blocks}
    size = state.block_size
    table = sequence.table if sequence else []
    assert drawn["table"] == [[str(i), str(b), f"{len(blocks[b].tokens)}/{size}"] for i, b in enumerate(table)]
    assert len(drawn["memory"]) == state.num_blocks
    for number, cell in enumerate(drawn["memory"]):
        block = blocks.get(number)
        assert (cell["owned"], cell["full"], cell["slots"]) == (
            block is not None,
            len(block.tokens) if block else 0,
            size,
        )
