"""What holds of memory at the end of every envelope."""

from __future__ import annotations

from collections import Counter

from engine.events import RequestState, SequenceState
from engine.reducer.books import ENDED, Books, Impossible


def check_debts(books: Books) -> None:
    """What this envelope has begun it has brought to its end."""
    envelope = books.envelope
    for number, block in envelope.replaced:
        raise Impossible(f"sequence {number} replaced block {block} in its table and never let go of it")
    for block, source in envelope.uncopied.items():
        if books.blocks[block].refs:
            raise Impossible(f"block {block} replaces block {source}, whose content was never copied")
    for number in envelope.unfreed:
        raise Impossible(f"block {number} has no reference left and was never freed")
    for number in envelope.leaving:
        raise Impossible(f"sequence {number} lets go of some blocks and keeps {books.sequences[number].table}")
    for number in envelope.bare:
        sequence = books.sequences[number]
        if books.lives(sequence) and not sequence.table:
            raise Impossible(f"sequence {number} got a token, goes on, and holds no block")
    if envelope.rows and not envelope.stepped:
        raise Impossible(f"{envelope.rows} slots were written and no step completed")


def forget_dropped(books: Books) -> None:
    for number in books.envelope.dropped:
        sequence = books.sequences[number]
        if sequence.table:
            raise Impossible(f"sequence {number} was dropped and holds {sequence.table}")
        books.requests[sequence.request].sequences.remove(number)
        del books.sequences[number]


def check(books: Books) -> None:
    """Tables, counts and contents agree. Raises Impossible with both sides."""
    for request in books.requests.values():
        for number in request.sequences:
            if number not in books.sequences or books.sequences[number].request != request.request:
                raise Impossible(f"request {request.request} names sequence {number}, which is none of its own")
    for sequence in books.sequences.values():
        if (
            sequence.request not in books.requests
            or sequence.sequence not in books.requests[sequence.request].sequences
        ):
            raise Impossible(f"sequence {sequence.sequence} belongs to request {sequence.request}, which has it not")
    _check_counts(books)
    for request in books.requests.values():
        sequences = [books.sequences[number] for number in request.sequences]
        for sequence in sequences:
            _check_place(books, request, sequence)
            _check_content(books, request, sequence)
        if request.status == "swapped" and not any(sequence.cpu_table for sequence in sequences):
            raise Impossible(f"request {request.request} is swapped out and has no CPU block")


def _check_counts(books: Books) -> None:
    tables = Counter(block for sequence in books.sequences.values() for block in sequence.table)
    for number, block in books.blocks.items():
        if block.refs != tables[number]:
            raise Impossible(f"block {number}: count {block.refs}, in tables {tables[number]} times")
        if len(block.tokens) > books.room(block) or len(block.tokens) != len(block.texts):
            raise Impossible(f"block {number} of {books.room(block)} slots: {block.tokens}, {block.texts}")
        if books.contiguous:
            owner = books.requests.get(block.request)
            if block.refs > 1 or (owner is not None and not _may_have_regions(books, owner)):
                raise Impossible(f"region {number} has count {block.refs} and belongs to {owner}")
        elif not block.refs and not block.hash:
            raise Impossible(f"block {number} has no reference and no hash, and is not free")
    if tables.keys() - books.blocks.keys():
        raise Impossible(f"tables name {sorted(tables)}, in use are {sorted(books.blocks)}")
    cpu = Counter(block for sequence in books.sequences.values() for block in sequence.cpu_table)
    counts = {number: block.refs for number, block in books.cpu_blocks.items()}
    if counts != cpu:
        raise Impossible(f"CPU blocks are counted {counts}, in CPU tables {dict(cpu)} times")


def _may_have_regions(books: Books, owner: RequestState) -> bool:
    return owner.status == "running" or (owner.status in ENDED and books.keeps_memory(owner))


def _check_place(books: Books, request: RequestState, sequence: SequenceState) -> None:
    """Blocks are held by what runs, CPU blocks by what is swapped out."""
    at_work = request.status == "running" and not sequence.finish
    over = request.status in ENDED or bool(sequence.finish)
    if sequence.table and not at_work and not (over and books.keeps_memory(request)):
        raise Impossible(
            f"sequence {sequence.sequence} ({sequence.finish or request.status}) of request {request.request} "
            f"({request.status}) holds {sequence.table}"
        )
    if sequence.cpu_table and (request.status != "swapped" or sequence.finish):
        raise Impossible(f"sequence {sequence.sequence} ({request.status}) has the CPU blocks {sequence.cpu_table}")


def _check_content(books: Books, request: RequestState, sequence: SequenceState) -> None:
    """Blocks hold the prompt, the same for all its sequences and at all times, and then what the sequence has said."""
    if not sequence.table:
        return
    stored = books.contents(sequence)
    prompt, said = stored[: request.prompt_tokens], stored[request.prompt_tokens :]
    if said != sequence.outputs[: len(said)]:
        raise Impossible(
            f"sequence {sequence.sequence} said {sequence.outputs}, its blocks hold {said} after the prompt"
        )
    known = books.prompts.setdefault(request.request, prompt)
    if prompt[: len(known)] != known[: len(prompt)]:
        raise Impossible(f"sequence {sequence.sequence} has the prompt {prompt}, request {request.request} had {known}")
    if len(prompt) > len(known):
        books.prompts[request.request] = prompt
