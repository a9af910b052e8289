"""Chapter three in a real browser, compared with the engine."""

from __future__ import annotations

import pytest

from engine.events import BlockAllocated, BlockReleased, Preempted, TokenGenerated
from tests.e2e.figure import Figure, expect_drawn
from tests.e2e.site import Follower, wait

pytestmark = pytest.mark.slow


def ended(follower: Follower, request: int) -> bool:
    return any(r.request == request and r.status == "finished" for r in follower.latest.requests)


@pytest.mark.parametrize(("prompt", "outputs"), [("Virtual memory was invented because", 24), ("Hello", 8)])
def test_a_typed_prompt_takes_exactly_the_blocks_it_needs(real, open_figure, prompt, outputs):
    """ceil((prompt + outputs - 1) / block size) lines in the table, the same as the engine reports."""
    figure: Figure = open_figure(real)
    follower = Follower(real, figure.secret)
    figure.page.get_by_label("Speed").select_option("4")
    figure.send(prompt, outputs)
    mine = wait(lambda: next((r for r in follower.latest.requests if r.source == "page"), None), "the request")
    wait(lambda: ended(follower, mine.request), "the last token")
    [sequence] = next(r for r in follower.latest.requests if r.request == mine.request).sequences
    produced = next(s for s in follower.latest.sequences if s.sequence == sequence).outputs
    needed = -(-(mine.prompt_tokens + len(produced) - 1) // 4)
    events = [event for step in follower.steps for event in step.events]
    assert not any(isinstance(event, Preempted) for event in events)
    reported = [e.block for e in events if isinstance(e, BlockAllocated) and e.sequence == sequence]
    assert len(reported) == needed

    release = next(e for e in events if isinstance(e, BlockReleased) and e.sequence == sequence)
    is_it = f"(e) => e.type === 'block_released' && e.block === {release.block} && e.sequence === {sequence}"
    position = figure.ask(f"f.session.log.find(0, {is_it})")
    figure.seek(position - 1)
    figure.ask(f"f.read({mine.request})")
    drawn = figure.drawn()
    assert [int(row[1]) for row in drawn["table"]] == reported
    assert len(drawn["table"]) == needed
    assert sum(int(row[2].split("/")[0]) for row in drawn["table"]) == mine.prompt_tokens + len(produced) - 1
    text = "".join("".join(row) for row in drawn["reads"])
    assert text.replace("↵", "\n").startswith(prompt)
    follower.close()


def test_what_is_drawn_equals_the_engine_at_five_positions_back_and_forth(real, open_figure):
    figure: Figure = open_figure(real)
    follower = Follower(real, figure.secret)
    first = max(follower.states)
    figure.page.get_by_label("Speed").select_option("4")
    figure.send("A second request joins and", 16)
    mine = wait(lambda: next((r for r in follower.latest.requests if r.source == "page"), None), "the request")
    wait(lambda: ended(follower, mine.request), "the last token")
    figure.page.get_by_role("button", name="Pause").click()
    wait(lambda: follower.latest.paused, "the pause")
    wait(lambda: figure.end_of(max(follower.states)) is not None, "the page's log")
    known = [seq for seq in sorted(follower.states) if seq > first]
    chosen = [known[len(known) * i // 5] for i in range(5)]
    for request in (4, mine.request):
        figure.ask(f"f.read({request})")
        for seq in [*chosen, *reversed(chosen)]:
            figure.seek(figure.end_of(seq))
            expect_drawn(figure.drawn(), follower.states[seq], request)
    follower.close()


def test_the_steps_of_two_requests_interleave(real, open_figure):
    figure: Figure = open_figure(real)
    follower = Follower(real, figure.secret)
    figure.page.get_by_label("Speed").select_option("4")
    figure.send("Two requests in one memory", 8)
    wait(lambda: any(r.source == "page" and r.status == "finished" for r in follower.latest.requests), "the end")
    speakers = [{e.sequence for e in step.events if isinstance(e, TokenGenerated)} for step in follower.steps]
    both = [each for each in speakers if each == {4, 5}]
    assert len(both) == 8
    follower.close()


def test_a_request_with_several_samples_has_a_table_for_each(tiny, open_figure):
    """They share the blocks of their prompt; each has what it has said in blocks of its own."""
    figure: Figure = open_figure(tiny)
    follower = Follower(tiny, figure.secret)
    arena = figure.ask("f.source.client.arena")
    options = {"n": 3, "temperature": 1, "max_tokens": 9, "ignore_eos": True}
    follower.say("submit", arena=arena, prompt="Hello there", **options)
    mine = wait(lambda: next((r for r in follower.latest.requests if r.source == "page"), None), "the request")
    for step in range(4):
        before = follower.latest.step
        follower.say("step", arena=arena)
        wait(lambda before=before: follower.latest.step > before, f"step {step}")
    state = follower.latest
    sequences = [sequence for sequence in state.sequences if sequence.request == mine.request]
    wait(lambda: figure.end_of(max(follower.states)) is not None, "the page's log")
    figure.ask(f"f.read({mine.request})")
    drawn = figure.drawn()
    filled = {block.block: f"{len(block.tokens)}/4" for block in state.blocks}
    expected = []
    for number, sequence in enumerate(sequences, 1):
        rows = [[str(logical), str(block), filled[block]] for logical, block in enumerate(sequence.table)]
        expected += [[f"sequence {number}"], *rows]
    assert (len(sequences), drawn["table"]) == (3, expected)
    shared = [block.block for block in state.blocks if block.refs == 3]
    assert len(shared) == 2
    assert all("3 references" in drawn["memory"][block]["words"] for block in shared)
    follower.close()


def test_pause_really_pauses_the_engine_and_a_step_is_one_step(tiny, open_figure):
    figure: Figure = open_figure(tiny)
    follower = Follower(tiny, figure.secret)
    assert follower.latest.paused
    before = follower.latest.step
    figure.page.get_by_role("button", name="On one event").click()
    wait(lambda: follower.latest.step == before + 1, "one step")
    figure.page.get_by_role("button", name="Play").click()
    wait(lambda: follower.latest.step >= before + 4, "the engine to run")
    figure.page.get_by_role("button", name="Pause").click()
    wait(lambda: follower.latest.paused, "the pause")
    at_rest = follower.latest.step
    figure.page.wait_for_timeout(1200)
    assert follower.latest.step == at_rest
    follower.close()


@pytest.mark.parametrize("size", [8, 16, 32, 4])
def test_another_block_size_opens_the_scene_again(tiny, open_figure, size):
    figure: Figure = open_figure(tiny)
    if size == 4:
        figure.page.get_by_role("radio", name="8").check(force=True)
        wait(lambda: figure.ask("f.session.log.head.block_size === 8 && f.session.set"), "block size 8")
    figure.page.get_by_role("radio", name=str(size), exact=True).check(force=True)
    wait(lambda: figure.ask(f"f.session.log.head.block_size === {size} && f.session.set"), "the new scene")
    figure.opened()
    follower = Follower(tiny, figure.secret)
    assert follower.latest.block_size == size
    assert follower.latest.paused
    expect_drawn(figure.drawn(), follower.latest, 4)
    follower.close()


def test_html_in_a_prompt_is_text(tiny, open_figure):
    figure: Figure = open_figure(tiny)
    prompt = "<img src=x onerror=alert(1)><b>&amp;</b>"
    figure.page.on("dialog", lambda dialog: pytest.fail("a script ran"))
    figure.send(prompt, 8)
    wait(lambda: prompt[:12] in "".join("".join(row) for row in figure.drawn()["reads"]), "the text in the slots")
    assert figure.page.locator("paged-block-table img").count() == 0


@pytest.mark.parametrize(("prompt", "words"), [("", "empty"), ("   ", "empty"), ("word " * 300, "1500 tokens")])
def test_a_prompt_that_cannot_be_is_explained_beside_the_field_and_kept(tiny, open_figure, prompt, words):
    figure: Figure = open_figure(tiny)
    follower = Follower(tiny, figure.secret)
    in_use = len(follower.latest.blocks)
    figure.send(prompt, 8)
    wait(lambda: words in (figure.page.locator(".trouble").text_content() or ""), f"an error that says {words!r}")
    assert figure.page.get_by_label("Prompt", exact=True).input_value() == prompt
    assert len(follower.latest.blocks) == in_use
    follower.close()
