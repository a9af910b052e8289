"""The events of requests, sequences and steps."""

from __future__ import annotations

from engine import events as ev
from engine.reducer.books import Books, Impossible
from engine.reducer.partition import check_partition


def arrived(books: Books, e: ev.RequestArrived) -> None:
    if e.request < books.next_request:
        raise Impossible(f"request {e.request} arrives, and the next number is {books.next_request}")
    if e.prompt_tokens < 1 or e.width < 1:
        raise Impossible(
            f"request {e.request} has {e.prompt_tokens} prompt tokens and width {e.width}: at least 1 each"
        )
    books.next_request = e.request + 1
    books.requests[e.request] = ev.RequestState(
        request=e.request,
        status="waiting",
        prompt_tokens=e.prompt_tokens,
        max_tokens=e.max_tokens,
        source=e.source,
        sequences=[],
        width=e.width,
        beam=e.beam,
        priority=e.priority,
    )


def admitted(books: Books, e: ev.RequestAdmitted) -> None:
    _before_the_forward_pass(books)
    request = books.request(e.request, "waiting")
    if request.sequences:
        _all_together(books, request, e.sequences)
    elif len(e.sequences) != 1 or e.sequences[0] in books.sequences:
        raise Impossible(f"request {e.request} starts with sequences {e.sequences}: it must be one that is new")
    else:
        request.sequences = list(e.sequences)
        books.sequences[e.sequences[0]] = ev.SequenceState(e.sequences[0], e.request, [], [], [])
    request.status = "running"


def refused(books: Books, e: ev.RequestRefused) -> None:
    """It gets no number and leaves no trace in the state."""


def forked(books: Books, e: ev.SequenceForked) -> None:
    parent = books.sequence(e.parent)
    # A beam that finds no memory any more ends as a hypothesis where it waits.
    request = books.request(parent.request, "running", "waiting", "swapped")
    if e.sequence in books.sequences:
        raise Impossible(f"sequence {e.sequence} is here already")
    if e.parent in books.envelope.dropped:
        raise Impossible(f"sequence {e.parent} was dropped and has a child")
    child = ev.SequenceState(e.sequence, parent.request, [], list(parent.outputs), list(parent.texts))
    books.sequences[e.sequence] = child
    request.sequences = sorted([*request.sequences, e.sequence])


def token_generated(books: Books, e: ev.TokenGenerated) -> None:
    sequence = books.sequence(e.sequence)
    request = books.request(sequence.request, "running")
    if sequence.finish:
        raise Impossible(f"sequence {e.sequence} has ended ({sequence.finish}) and says more")
    if len(sequence.outputs) >= request.max_tokens:
        raise Impossible(f"sequence {e.sequence} has {len(sequence.outputs)} tokens, the most is {request.max_tokens}")
    known = request.prompt_tokens + len(sequence.outputs)
    written = sum(len(books.blocks[number].tokens) for number in sequence.table)
    if not sequence.table:
        books.envelope.bare.add(e.sequence)
    elif written != known and not (books.contiguous and written == 0):
        # A region that a fork was given is filled by a copy in the next step.
        raise Impossible(f"sequence {e.sequence} has {written} slots written of {known} tokens, and goes on")
    sequence.outputs.append(e.token)
    sequence.texts.append(e.text)


def sequence_finished(books: Books, e: ev.SequenceFinished) -> None:
    sequence = books.sequence(e.sequence)
    # A hypothesis of beam search has ended, and is dropped when a better one takes its place.
    again = sequence.finish and (e.reason != "dropped" or sequence.finish == "dropped")
    if again or not e.reason:
        raise Impossible(f"sequence {e.sequence} ends with reason {e.reason!r}, it has {sequence.finish!r}")
    if e.output_tokens != len(sequence.outputs):
        raise Impossible(f"sequence {e.sequence} has {len(sequence.outputs)} tokens, the event says {e.output_tokens}")
    sequence.finish = e.reason
    if e.reason == "dropped":
        books.envelope.dropped.add(e.sequence)


def finished(books: Books, e: ev.RequestFinished) -> None:
    request = books.request(e.request, "running", "waiting", "swapped")
    remaining = [number for number in request.sequences if number not in books.envelope.dropped]
    outputs = sum(len(books.sequences[number].outputs) for number in remaining)
    if outputs != e.output_tokens:
        raise Impossible(f"request {e.request} has {outputs} tokens in {remaining}, the event says {e.output_tokens}")
    going = books.live(request)
    if going:
        raise Impossible(f"request {e.request} ends, and its sequences {going} go on")
    request.status, request.reason = "finished", e.reason
    _leave_the_cpu(books, request)


def aborted(books: Books, e: ev.RequestAborted) -> None:
    request = books.request(e.request)
    registered = request.status == "finished" and request.reason == "registered"
    if not registered:
        books.request(e.request, "running", "waiting", "swapped")
    request.status, request.reason = "aborted", e.reason
    _leave_the_cpu(books, request)


def preempted(books: Books, e: ev.Preempted) -> None:
    _before_the_forward_pass(books)
    if e.mode not in ("recompute", "swap"):
        raise Impossible(f"mode {e.mode!r} is neither recompute nor swap")
    request = books.request(e.request, "running")
    _all_together(books, request, e.sequences)
    request.status = "waiting" if e.mode == "recompute" else "swapped"


def step_completed(books: Books, e: ev.StepCompleted) -> None:
    envelope = books.envelope
    if e.step != books.steps + 1:
        raise Impossible(f"step {e.step} after step {books.steps}")
    if (e.batch, e.tokens) != (len(envelope.ran), envelope.rows):
        raise Impossible(f"{e.tokens} rows of {e.batch} sequences, {envelope.rows} of {len(envelope.ran)} were written")
    statuses = [request.status for request in books.requests.values()]
    waiting, swapped = statuses.count("waiting"), statuses.count("swapped")
    if (e.waiting, e.swapped) != (waiting, swapped):
        raise Impossible(f"{e.waiting} waiting and {e.swapped} swapped out, by status {waiting} and {swapped}")
    books.steps = e.step
    envelope.stepped = True
    check_partition(books, e.partition)


def _before_the_forward_pass(books: Books) -> None:
    if books.envelope.rows:
        raise Impossible("slots were written in this step already: what runs is decided before")


def _all_together(books: Books, request: ev.RequestState, sequences: list[int]) -> None:
    live = books.live(request)
    if sorted(sequences) != live:
        raise Impossible(f"sequences {sequences}, those of request {request.request} that go on are {live}")


def _leave_the_cpu(books: Books, request: ev.RequestState) -> None:
    for number in request.sequences:
        sequence = books.sequences[number]
        for block in sequence.cpu_table:
            books.cpu_blocks.pop(block, None)
        sequence.cpu_table = []
