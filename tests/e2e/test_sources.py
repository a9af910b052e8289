"""Where the figure's events come from, and what it says when that changes."""

from __future__ import annotations

import os
import signal

import pytest

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
    wait(lambda: figure.ask("Boolean(f.source.recorded)"), "the recording to be fetched while there is a server")
    own.stop()
    wait(lambda: figure.label.startswith("recorded on 20"), "the recording")
    assert "SmolLM2-135M-Instruct" in figure.label
    assert "no server answers" in figure.label
    assert figure.drawn()["table"]
    own.start()
    wait(lambda: figure.label.startswith("live:"), "the live figure")
