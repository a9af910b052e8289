"""Where the figure's events come from, and what it says when that changes."""

from __future__ import annotations

import os
import signal

import pytest
from websockets.sync.client import connect

from tests.e2e.figure import Figure
from tests.e2e.site import Follower, Site, wait

pytestmark = pytest.mark.slow


@pytest.fixture
def own():
    """A server of the test's own, to be stopped and killed."""
    site = Site(MODEL="tiny")
    yield site
    if site.process.poll() is None:
        site.stop()


def test_the_label_names_model_dtype_and_kernel_as_the_server_does(real, open_figure):
    figure: Figure = open_figure(real)
    model = real.state()["model"]
    for part in (model["name"], model["dtype"], model["label"], model["attention"].split(": ", 1)[1]):
        assert part in figure.label
    assert figure.label.startswith("live:")
    assert figure.ask("f.source.client.arena") is not None
    follower = Follower(real, figure.secret)
    assert follower.latest.sequences[-1].table == [int(row[1]) for row in figure.drawn()["table"]]
    follower.close()


def test_while_the_model_loads_there_is_a_progress_bar_and_then_the_figure(own, page):
    figure = Figure(page, own)
    bar = page.locator("paged-block-table progress")
    bar.wait_for(state="visible", timeout=20_000)
    assert "load" in figure.label or "start" in figure.label
    figure.opened()
    assert bar.is_hidden()


def test_a_killed_engine_is_told_and_comes_back_in_a_new_epoch(own, page):
    own.ready()
    figure = Figure(page, own).opened()
    before = figure.ask("f.session.log.epoch")
    os.kill(own.engine_pid(), signal.SIGKILL)
    wait(lambda: "starts again" in figure.label, "the label to say so")
    wait(lambda: figure.label.startswith("live:") and "started again" in figure.label, "the new engine")
    assert figure.ask("f.session.log.epoch") > before
    figure.opened()


def test_without_a_server_the_recording_plays_and_says_so_and_live_takes_over_again(own, page):
    own.ready()
    page.allow("WebSocket connection")
    page.allow("ERR_CONNECTION_REFUSED")
    page.emulate_media(reduced_motion="reduce")
    figure = Figure(page, own).opened()
    wait(lambda: figure.ask("f.source.recording.text"), "the recording to be fetched while there is a server")
    assert figure.ask("f.source.recorded") is None
    own.stop()
    wait(lambda: figure.label.startswith("recorded on 20"), "the recording")
    assert "SmolLM2-135M-Instruct" in figure.label
    assert "no server answers" in figure.label
    opening = figure.drawn()
    assert opening["table"]

    page.get_by_role("button", name="Play", exact=True).click()
    wait(lambda: figure.drawn()["position"] > opening["position"] + 3, "the recording to play")
    page.get_by_role("button", name="Pause", exact=True).click()
    end = figure.ask("f.session.log.end")
    figure.seek(end)
    assert figure.drawn()["position"] == end
    figure.seek(opening["position"])
    assert figure.drawn() == opening

    own.start()
    wait(lambda: figure.label.startswith("live:"), "the live figure")
    figure.opened()


def sockets_of(page):
    """The page's attempts to open a socket, and what it sent on them."""
    opened, sent = [], []

    def count(socket):
        opened.append(socket.url)
        socket.on("framesent", lambda frame: sent.append(frame))

    page.on("websocket", count)
    return opened, sent


def test_a_server_with_too_many_readers_is_asked_rarely_and_the_page_says_why(page):
    site = Site(MODEL="tiny", MAX_SOCKETS="1")
    try:
        site.ready()
        opened, _ = sockets_of(page)
        with connect(site.url.replace("http", "ws") + "/ws/arena", origin=site.url):
            figure = Figure(page, site)
            wait(lambda: figure.label.startswith("recorded on 20"), "the recording")
            assert "the server has too many readers at the moment" in figure.label
            page.wait_for_timeout(10_000)
            assert 2 <= len(opened) <= 4
            assert "too many readers" in figure.label
            assert figure.drawn()["table"]
        wait(lambda: figure.label.startswith("live:"), "its turn")
    finally:
        page.goto("about:blank")
        site.stop()


LARGER = """
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (text) {
    send.call(this, text.replace('"num_blocks":48', '"num_blocks":480'));
  };
"""


def test_a_memory_that_the_server_does_not_open_is_explained_in_its_words_and_not_asked_for_again(tiny, page):
    page.add_init_script(LARGER)
    opened, sent = sockets_of(page)
    figure = Figure(page, tiny)
    wait(lambda: figure.label.startswith("recorded on 20"), "the recording")
    assert "480 blocks of 4 tokens are 1920 slots; an arena has at most 1024" in figure.label
    page.wait_for_timeout(3000)
    assert len(opened) == 1
    assert len(sent) == 1
    assert figure.drawn()["table"]


def test_a_chosen_block_size_shows_at_once_and_stays(tiny, open_figure):
    figure: Figure = open_figure(tiny)
    for size in ("8", "16", "32", "4", "16"):
        seen = figure.page.evaluate(
            """(size) => new Promise((done) => {
              const figure = document.querySelector("paged-block-table");
              const radios = [...figure.querySelectorAll(".sizes input")];
              const seen = [];
              radios.find((radio) => radio.value === size).click();
              const look = () => {
                seen.push(radios.find((radio) => radio.checked)?.value);
                if (figure.source.asked === null && figure.session.set) done(seen);
                else requestAnimationFrame(look);
              };
              look();
            })""",
            size,
        )
        assert set(seen) == {size}
        assert figure.ask("f.session.log.head.block_size") == int(size)
