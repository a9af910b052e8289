"""The events of slots: written, copied, swapped (paper sections 4.4, 4.5 and 5.1)."""

from __future__ import annotations

from collections import Counter

from engine import events as ev
from engine.reducer.books import Books, Impossible


def written(books: Books, e: ev.SlotsWritten) -> None:
    block = books.used(e.block)
    if block.refs != 1:
        raise Impossible(f"block {e.block} is written while {block.refs} refer to it: copy first")
    if block.hash:
        raise Impossible(f"block {e.block} is written while the prefix cache keeps it under {block.hash!r}")
    if not 1 <= e.count == len(e.tokens) == len(e.texts):
        raise Impossible(f"count {e.count}, with {len(e.tokens)} tokens and {len(e.texts)} texts")
    if e.first != len(block.tokens):
        raise Impossible(f"slot {e.first} of block {e.block} is written, the next one is {len(block.tokens)}")
    if e.first + e.count > books.room(block):
        raise Impossible(
            f"slots {e.first} to {e.first + e.count - 1} of block {e.block}, which has {books.room(block)}"
        )
    sequence = books.sequences[books.holders[e.block][0]]
    if not books.lives(sequence):
        raise Impossible(f"sequence {sequence.sequence} has ended and writes into block {e.block}")
    logical = sequence.table.index(e.block)
    before = books.blocks[sequence.table[logical - 1]] if logical else None
    if before is not None and len(before.tokens) != books.block_size:
        raise Impossible(
            f"block {e.block} is written while block {before.block} before it has {len(before.tokens)} slots"
        )
    if books.envelope.uncopied.get(e.block) is not None:
        raise Impossible(f"block {e.block} is written before the copy of block {books.envelope.uncopied[e.block]}")
    block.tokens += e.tokens
    block.texts += e.texts
    books.envelope.ran.add(sequence.sequence)
    books.envelope.rows += e.count


def copied(books: Books, e: ev.BlockCopied) -> None:
    envelope = books.envelope
    if envelope.rows:
        raise Impossible("slots were written in this step already: copies come before")
    source = books.block(e.source)
    if not 1 <= e.count <= len(source.tokens):
        raise Impossible(f"{e.count} slots of block {e.source}, which has {len(source.tokens)} written")
    if e.source in envelope.destinations:
        raise Impossible(f"block {e.source} was copied to in this step already, and is copied from")
    if (e.source, e.count) in envelope.copies:
        raise Impossible(f"{e.count} slots of block {e.source} are copied twice in one step: one event for all")
    if not e.destinations or len(set(e.destinations)) != len(e.destinations):
        raise Impossible(f"the destinations {e.destinations} are none, or one of them twice")
    for number in e.destinations:
        block = books.used(number)
        sources = {e.source, *(source for source, _ in envelope.copies)}
        if number in sources or number in envelope.destinations:
            raise Impossible(f"block {number} takes part in another copy of this step")
        if block.refs != 1 or block.tokens:
            raise Impossible(
                f"block {number} is copied to, with count {block.refs} and {len(block.tokens)} slots written"
            )
        if envelope.uncopied.get(number, e.source) != e.source:
            raise Impossible(f"block {number} replaces block {envelope.uncopied[number]}, not block {e.source}")
        if e.count > books.room(block) or block.request != source.request:
            raise Impossible(f"{e.count} slots of {source} do not go into {block}")
        block.tokens, block.texts = source.tokens[: e.count], source.texts[: e.count]
        envelope.uncopied.pop(number, None)
        envelope.destinations.add(number)
    envelope.copies.add((e.source, e.count))


def swapped_out(books: Books, e: ev.SwappedOut) -> None:
    request = books.request(e.request, "swapped")
    tables = [books.sequences[number].table for number in books.live(request)]
    refs = Counter(block for table in tables for block in table)
    to_cpu = _mapping(e.pairs)
    if set(to_cpu) != set(refs):
        raise Impossible(f"blocks {sorted(to_cpu)} are moved, request {e.request} holds {sorted(refs)}")
    for block, cpu in to_cpu.items():
        if not 0 <= cpu < books.num_cpu_blocks:
            raise Impossible(f"CPU block {cpu}, and there are {books.num_cpu_blocks}")
        if cpu in books.cpu_blocks:
            raise Impossible(f"CPU block {cpu} is in use")
        source = books.blocks[block]
        books.cpu_blocks[cpu] = ev.BlockState(cpu, refs[block], list(source.tokens), list(source.texts))
    for number in books.live(request):
        sequence = books.sequences[number]
        sequence.cpu_table = [to_cpu[block] for block in sequence.table]


def swapped_in(books: Books, e: ev.SwappedIn) -> None:
    if books.envelope.rows:
        raise Impossible("slots were written in this step already: swapping comes before")
    request = books.request(e.request, "swapped")
    from_cpu = _mapping(e.pairs)
    sequences = [books.sequences[number] for number in books.live(request)]
    away = {block for sequence in sequences for block in sequence.cpu_table}
    if set(from_cpu) != away:
        raise Impossible(f"CPU blocks {sorted(from_cpu)} come back, request {e.request} has {sorted(away)}")
    for sequence in sequences:
        expected = [from_cpu[block] for block in sequence.cpu_table]
        if sequence.table != expected:
            raise Impossible(f"sequence {sequence.sequence} has the table {sequence.table}, and must have {expected}")
        sequence.cpu_table = []
    for cpu, number in from_cpu.items():
        block = books.blocks[number]
        if block.tokens:
            raise Impossible(f"block {number} has {len(block.tokens)} slots written before its content comes back")
        away_block = books.cpu_blocks.pop(cpu)
        block.tokens, block.texts = away_block.tokens, away_block.texts
    request.status = "running"


def _mapping(pairs: list[tuple[int, int]]) -> dict[int, int]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs) or len(set(mapping.values())) != len(pairs):
        raise Impossible(f"{pairs} moves a block twice, or two blocks to one place")
    return mapping
