"""Envelopes that cannot follow: each breaks one rule of memory after some envelopes of a story, and every reducer must
refuse it in words that name both sides."""

from __future__ import annotations

from dataclasses import dataclass

from engine import events as ev
from tests.stories import STORIES, Events, Story, arrive, done, let_go, parts, say, t, write


@dataclass(frozen=True)
class Case:
    """After ``told`` envelopes of ``story`` come ``events``. ``words``, parted by bars, are all in the complaint.
    ``remembered``: who knows no more than the state at the last envelope cannot tell."""

    name: str
    story: str
    told: int
    events: Events
    words: str
    partition: ev.Partition | None = None
    remembered: bool = False

    def log(self) -> Story:
        """The story up to the envelope to refuse; memory is divided as before where the case does not say."""
        story = STORIES[self.story]()
        del story.steps[self.told :]
        known = story.steps[-1].partition if story.steps else story.snapshot.state.partition
        story.tell(self.events, self.partition or known)
        return story


def _cached(*blocks: int, hashes: list[str], parent: str = "", tokens: list[int], request: int = 0) -> ev.BlockCached:
    return ev.BlockCached(request, list(blocks), hashes, parent, tokens)


REQUESTS = [
    Case("arrives twice", "growing", 1, [arrive(0, 1)], "request 0 arrives | next number is 1"),
    Case("arrives empty", "growing", 1, [arrive(1, 0)], "0 prompt tokens | at least 1"),
    Case("arrives without width", "growing", 1, [arrive(1, 1, width=0)], "width 0 | at least 1"),
    Case("is admitted unknown", "growing", 1, [ev.RequestAdmitted(7, [7])], "no request 7"),
    Case("is admitted twice", "growing", 2, [ev.RequestAdmitted(0, [0])], "is running | must be waiting"),
    Case("is admitted after its end", "growing", 5, [ev.RequestAdmitted(0, [0])], "is finished | must be waiting"),
    Case("starts with two sequences", "growing", 1, [ev.RequestAdmitted(0, [0, 1])], "[0, 1] | one that is new"),
    Case("starts with nothing", "growing", 1, [ev.RequestAdmitted(0, [])], "[] | one that is new"),
    Case("starts as another", "recompute", 2, [arrive(2, 1), ev.RequestAdmitted(2, [1])], "[1] | one that is new"),
    Case("comes back as another", "recompute", 4, [ev.RequestAdmitted(1, [2])], "[2] | that go on are [1]"),
    Case(
        "is admitted in mid-step",
        "recompute",
        4,
        [ev.BlockAllocated(1, 0, 2), write(1, 0, 14), ev.RequestAdmitted(1, [1])],
        "slots were written | before",
    ),
    Case("ends unknown", "growing", 2, [ev.RequestFinished(5, "stop", 0)], "no request 5"),
    Case("ends twice", "growing", 5, [ev.RequestFinished(0, "stop", 2)], "is finished | must be running"),
    Case("ends with another count", "growing", 2, [ev.RequestFinished(0, "stop", 2)], "1 tokens | says 2"),
    Case("ends before its sequences", "sampling", 4, [ev.RequestFinished(0, "stop", 6)], "request 0 ends | [1] go on"),
    Case(
        "counts what was dropped",
        "beams",
        2,
        [ev.SequenceFinished(1, "dropped", 1), ev.RequestFinished(0, "stop", 2)],
        "1 tokens | [0] | says 2",
    ),
    Case("is aborted unknown", "growing", 2, [ev.RequestAborted(5, "x")], "no request 5"),
    Case("is aborted after its end", "growing", 5, [ev.RequestAborted(0, "x")], "is finished | must be running"),
    Case("ends and keeps its blocks", "growing", 2, [ev.RequestAborted(0, "x")], "(aborted) | holds [3, 1]"),
]

SEQUENCES = [
    Case("forks from nobody", "sampling", 2, [ev.SequenceForked(2, 9)], "no sequence 9"),
    Case("forks into one that is here", "sampling", 2, [ev.SequenceForked(1, 0)], "sequence 1 is here already"),
    Case("forks after its end", "growing", 5, [ev.SequenceForked(2, 0)], "is finished | must be running"),
    Case(
        "forks from what was dropped",
        "beams",
        2,
        [ev.SequenceFinished(1, "dropped", 1), ev.SequenceForked(2, 1)],
        "sequence 1 was dropped | child",
    ),
    Case("speaks unknown", "growing", 2, [say(4, 14)], "no sequence 4"),
    Case("speaks while it waits", "recompute", 4, [say(1, 23)], "is waiting | must be running"),
    Case("speaks after its end", "sampling", 4, [say(0, 23)], "sequence 0 has ended (stop)"),
    Case("speaks past its length", "growing", 2, [write(1, 1, 13), say(0, 14), say(0, 15)], "2 tokens | the most is 2"),
    Case("speaks without having read", "growing", 2, [say(0, 14)], "3 slots written | 4 tokens"),
    Case("goes on without memory", "beams", 3, [ev.SequenceForked(4, 0), say(4, 23)], "sequence 4 | holds no block"),
    Case("ends unknown", "growing", 2, [ev.SequenceFinished(4, "stop", 1)], "no sequence 4"),
    Case("ends twice", "sampling", 4, [ev.SequenceFinished(0, "length", 3)], "'length' | 'stop'"),
    Case("ends for no reason", "growing", 2, [ev.SequenceFinished(0, "", 1)], "reason ''"),
    Case("ends with another count", "growing", 2, [ev.SequenceFinished(0, "stop", 3)], "1 tokens | says 3"),
    Case("is dropped twice", "beams", 3, [ev.SequenceFinished(3, "dropped", 2)] * 2, "'dropped'"),
    Case("is dropped and holds blocks", "beams", 2, [ev.SequenceFinished(1, "dropped", 1)], "sequence 1 | holds [0]"),
    Case(
        "ends and holds blocks", "sampling", 3, [ev.SequenceFinished(0, "stop", 2)], "sequence 0 (stop) | holds [4, 3]"
    ),
]

STEPS = [
    Case("steps twice", "growing", 2, [done(1, 0, 0, parts(3, 1, 8))], "step 1 after step 1"),
    Case(
        "counts other rows",
        "growing",
        2,
        [write(1, 1, 13), say(0, 14), done(2, 1, 2, parts(4, 0, 8))],
        "2 rows of 1 sequences | 1 of 1",
    ),
    Case(
        "counts another batch",
        "growing",
        2,
        [write(1, 1, 13), say(0, 14), done(2, 2, 1, parts(4, 0, 8))],
        "1 rows of 2 sequences | 1 of 1",
    ),
    Case("counts others that wait", "growing", 2, [done(2, 0, 0, parts(3, 1, 8), waiting=1)], "1 waiting | 0 and 0"),
    Case("counts others swapped out", "swapping", 5, [done(4, 0, 0, parts(1, 1, 10))], "0 swapped out | 0 and 1"),
    Case(
        "speaks after its end",
        "growing",
        2,
        [write(1, 1, 13), done(2, 1, 1, parts(4, 0, 8)), say(0, 14)],
        "has completed | envelope of its own",
    ),
    Case(
        "completes twice",
        "growing",
        2,
        [done(2, 0, 0, parts(3, 1, 8)), done(3, 0, 0, parts(3, 1, 8))],
        "has completed | envelope of its own",
    ),
    Case("writes and does not complete", "growing", 2, [write(1, 1, 13)], "1 slots were written | no step completed"),
    Case("divides otherwise at its end", "growing", 2, [done(2, 0, 0, parts(4, 0, 8))], "token_states=4 | 3 slots are"),
    Case("adds up to more", "growing", 2, [], "13 slots of 12", parts(3, 1, 9)),
    Case("has less than nothing", "growing", 2, [], "held=-1", parts(3, -1, 10)),
    Case("counts other written slots", "growing", 2, [], "token_states=4 | 3 slots are written", parts(4, 0, 8)),
    Case("counts other free slots", "growing", 2, [], "free=9 | 8 are nobody's", parts(3, 0, 9)),
    Case("counts other cached slots", "prefix", 2, [], "cached=2 | 4 of them cached", parts(free=8, cached=2)),
    Case("rounds otherwise", "regions", 2, [], "external=2 | 4 slots are due", parts(2, external=2, reserved=12)),
    Case("counts slots of the ended", "batch", 2, [], "token_states=2 | 1 slots are", parts(2, internal=6)),
    Case("forgets slots of the ended", "batch", 2, [], "internal=3 | 4 belong", parts(1, held=4, internal=3)),
]

BLOCKS = [
    Case("allocates past the end", "growing", 2, [ev.BlockAllocated(6, 0, 2)], "block 6 | 0 to 5"),
    Case("allocates below zero", "growing", 2, [ev.BlockAllocated(-1, 0, 2)], "block -1 | 0 to 5"),
    Case("allocates what is in use", "growing", 2, [ev.BlockAllocated(3, 0, 2)], "block 3 is in use | count is 1"),
    Case(
        "allocates what is cached",
        "prefix",
        3,
        [ev.RequestAdmitted(1, [1]), ev.BlockAllocated(1, 1, 0)],
        "block 1 | 'bb' | not evicted",
    ),
    Case("allocates to nobody", "growing", 2, [ev.BlockAllocated(0, 9, 0)], "no sequence 9"),
    Case("allocates to what has ended", "sampling", 4, [ev.BlockAllocated(5, 0, 0)], "sequence 0 has ended (stop)"),
    Case("allocates to what waits", "recompute", 4, [ev.BlockAllocated(1, 1, 0)], "is waiting | must be running"),
    Case("leaves a gap in the table", "growing", 2, [ev.BlockAllocated(0, 0, 3)], "logical block 3 | has 2"),
    Case("counts back in the table", "growing", 2, [ev.BlockAllocated(0, 0, -1)], "logical block -1 | has 2"),
    Case(
        "copies before it has written",
        "sampling",
        2,
        [ev.BlockAllocated(3, 0, 1), ev.BlockReleased(1, 0, 1), ev.BlockAllocated(2, 0, 1)],
        "block 3 | new in this envelope",
    ),
    Case("replaces and keeps", "sampling", 2, [ev.BlockAllocated(3, 0, 1)], "replaced block 1 | never let go"),
    Case(
        "replaces and does not copy",
        "sampling",
        2,
        [ev.BlockAllocated(3, 0, 1), ev.BlockReleased(1, 0, 1)],
        "block 3 replaces block 1 | never copied",
    ),
    Case("shares what is free", "sampling", 2, [ev.BlockShared(0, 1, 2, 1)], "block 0 is free"),
    Case("shares what is cached", "prefix", 4, [ev.BlockShared(1, 1, 2, 1)], "block 1 is not in use | count is 0"),
    Case("shares with a gap", "recompute", 2, [ev.BlockShared(0, 1, 2, 2)], "logical block 2 | has 1"),
    Case("shares with itself", "recompute", 2, [ev.BlockShared(1, 1, 1, 2)], "sequence 1 has block 1 already"),
    Case("shares and counts otherwise", "recompute", 2, [ev.BlockShared(0, 1, 1, 3)], "had 1 references | 2 and not 3"),
    Case("lets go of what is free", "growing", 2, [ev.BlockReleased(0, 0, 0)], "block 0 is free"),
    Case("lets go of what is cached", "prefix", 4, [ev.BlockReleased(1, 1, 0)], "block 1 is not in use"),
    Case("lets go for nobody", "growing", 2, [ev.BlockReleased(3, 9, 0)], "no sequence 9"),
    Case("lets go and counts otherwise", "growing", 2, [ev.BlockReleased(3, 0, 1)], "had 1 references | 0 and not 1"),
    Case("lets go of another's", "recompute", 2, [ev.BlockReleased(0, 1, 0)], "sequence 1 holds [1], not block 0"),
    Case("lets go and goes on", "growing", 2, [ev.BlockReleased(1, 0, 0)], "sequence 0 goes on | block 1"),
    Case("lets go by half", "growing", 2, [ev.RequestAborted(0, "x"), *let_go(1, 0)], "sequence 0 | keeps [3]"),
    Case(
        "takes while it lets go",
        "swapping",
        3,
        [
            ev.Preempted(0, [0, 1], "swap"),
            ev.SwappedOut(0, [(5, 2), (0, 0), (1, 3)], 9),
            *let_go(0, 0),
            ev.BlockAllocated(0, 0, 1),
        ],
        "letting go | [5]",
    ),
    Case(
        "never frees",
        "growing",
        2,
        [ev.RequestAborted(0, "x"), *let_go(1, 0), ev.BlockReleased(3, 0, 0)],
        "block 3 | never freed",
    ),
    Case("frees what is held", "growing", 2, [ev.BlockFreed(3)], "block 3 has 1 references left"),
    Case("frees what is free", "growing", 2, [ev.BlockFreed(0)], "block 0 is free"),
    Case("frees what is cached", "prefix", 2, [ev.BlockFreed(0)], "block 0 is free already | 'aa'"),
    Case("frees a region as a block", "regions", 2, [ev.BlockFreed(0)], "orca_max | no such thing"),
]

CACHE = [
    Case("hits under another hash", "prefix", 4, [ev.PrefixHit(1, 1, 2, 1, "cc")], "'bb', not 'cc'"),
    Case("hits what has no hash", "growing", 2, [ev.PrefixHit(3, 0, 2, 2, "")], "block 3 | '', not ''"),
    Case("hits what is free", "prefix", 4, [ev.PrefixHit(3, 1, 2, 1, "bb")], "block 3 is free"),
    Case(
        "hits all that there is",
        "prefix",
        3,
        [ev.RequestAdmitted(1, [1]), ev.PrefixHit(0, 1, 0, 1, "aa"), ev.PrefixHit(1, 1, 1, 1, "bb")],
        "logical block 1 | none of the 4 tokens",
    ),
    Case(
        "hits what is not freed yet",
        "prefix",
        5,
        [
            ev.RequestAborted(1, "x"),
            ev.BlockReleased(2, 1, 0),
            ev.RequestAdmitted(2, [2]),
            ev.PrefixHit(2, 2, 0, 1, "cc"),
        ],
        "block 2 | not on the free list yet",
    ),
    Case("evicts what is in use", "prefix", 4, [ev.BlockEvicted(0, "aa")], "block 0 | count is 1"),
    Case("evicts under another hash", "prefix", 4, [ev.BlockEvicted(1, "cc")], "'bb', not 'cc'"),
    Case("evicts what is free", "prefix", 4, [ev.BlockEvicted(3, "bb")], "block 3 is free"),
    Case(
        "evicts what is not freed yet",
        "prefix",
        4,
        [ev.RequestAborted(1, "x"), ev.BlockReleased(2, 1, 0), ev.BlockEvicted(2, "cc")],
        "block 2 is not on the free list",
    ),
    Case("caches nothing", "growing", 2, [_cached(hashes=[], tokens=[])], "0 blocks and 0 hashes"),
    Case("caches with fewer hashes", "growing", 2, [_cached(3, hashes=[], tokens=[10, 11])], "1 blocks and 0 hashes"),
    Case("caches under no hash", "growing", 2, [_cached(3, hashes=[""], tokens=[10, 11])], "[''] | one for each"),
    Case(
        "caches two under one hash",
        "sampling",
        3,
        [_cached(4, 3, hashes=["aa", "aa"], tokens=[10, 11, 12, 20])],
        "['aa', 'aa'] | one for each",
    ),
    Case("caches what is free", "growing", 2, [_cached(0, hashes=["aa"], tokens=[10, 11])], "block 0 is free"),
    Case(
        "caches what is cached",
        "prefix",
        4,
        [_cached(0, hashes=["dd"], tokens=[10, 11], request=1)],
        "block 0 is cached already, under 'aa'",
    ),
    Case(
        "caches under a hash that is taken",
        "prefix",
        6,
        [_cached(1, hashes=["cc"], tokens=[], request=2)],
        "'cc' is the hash of block 2",
    ),
    Case("caches what is not full", "growing", 2, [_cached(1, hashes=["aa"], tokens=[12])], "block 1 has 1 of 2 slots"),
    Case("caches other tokens", "growing", 2, [_cached(3, hashes=["aa"], tokens=[10, 99])], "[10, 11] | says [10, 99]"),
    Case(
        "caches for another request",
        "sampling",
        3,
        [arrive(1, 1), _cached(4, hashes=["aa"], tokens=[10, 11], request=1)],
        "no sequence of request 1 holds | [4]",
    ),
    Case(
        "caches out of order",
        "sampling",
        3,
        [_cached(3, 4, hashes=["bb", "aa"], tokens=[12, 20, 10, 11])],
        "[3, 4] | not in the order | [4, 3]",
    ),
    Case(
        "caches the first with a parent",
        "growing",
        2,
        [_cached(3, hashes=["aa"], parent="zz", tokens=[10, 11])],
        "block 3 is the first | 'zz'",
    ),
    Case(
        "caches without a parent", "sampling", 3, [_cached(3, hashes=["bb"], tokens=[12, 20])], "block 3 | parent is ''"
    ),
    Case(
        "caches with another parent",
        "sampling",
        3,
        [
            _cached(4, hashes=["aa"], tokens=[10, 11]),
            _cached(3, hashes=["bb"], parent="zz", tokens=[12, 20]),
        ],
        "hash 'aa' | parent is 'zz'",
    ),
]

SLOTS = [
    Case("writes what is free", "growing", 2, [write(0, 0, 1)], "block 0 is free"),
    Case("writes what is shared", "sampling", 2, [write(1, 1, 20)], "block 1 | 2 refer to it"),
    Case("writes what is cached", "prefix", 4, [write(2, 2, 5)], "block 2 | 'cc'"),
    Case("writes nothing", "growing", 2, [write(1, 1)], "count 0"),
    Case("writes other tokens", "growing", 2, [ev.SlotsWritten(1, 1, 2, [13], [t(13)])], "count 2 | 1 tokens"),
    Case("writes other texts", "growing", 2, [ev.SlotsWritten(1, 1, 1, [13], [])], "1 tokens and 0 texts"),
    Case("writes over a slot", "growing", 2, [write(1, 0, 12)], "slot 0 of block 1 | next one is 1"),
    Case("leaves a slot out", "recompute", 2, [write(1, 2, 21)], "slot 2 of block 1 | next one is 1"),
    Case("writes past the end", "growing", 2, [write(1, 1, 13, 14)], "slots 1 to 2 of block 1 | has 2"),
    Case("writes past a reservation", "regions", 2, [write(0, 2, 20, 5, 6, 7, 8)], "slots 2 to 6 of block 0 | has 6"),
    Case("writes after its end", "batch", 2, [write(0, 1, 11)], "sequence 0 has ended | block 0"),
    Case(
        "writes before the block before",
        "growing",
        2,
        [ev.BlockAllocated(0, 0, 2), write(0, 0, 14)],
        "block 0 | block 1 before it has 1",
    ),
    Case(
        "writes before the copy",
        "sampling",
        3,
        [
            ev.SequenceForked(2, 0),
            ev.BlockShared(4, 2, 0, 3),
            ev.BlockShared(3, 2, 1, 2),
            ev.BlockAllocated(5, 2, 1),
            ev.BlockReleased(3, 2, 1),
            write(5, 0, 12),
        ],
        "block 5 is written | copy of block 3",
    ),
    Case(
        "stores what nobody said",
        "growing",
        2,
        [write(1, 1, 99), say(0, 14), done(2, 1, 1, parts(4, 0, 8))],
        "said [13, 14] | hold [99]",
        parts(4, 0, 8),
    ),
    Case(
        "comes back with another prompt",
        "recompute",
        5,
        [
            ev.RequestAdmitted(1, [1]),
            ev.BlockAllocated(0, 1, 0),
            write(0, 0, 29),
            done(4, 1, 1, parts(1, 1, 4)),
        ],
        "prompt [29] | had [20]",
        parts(1, 1, 4),
        remembered=True,
    ),
]

_COW = [ev.BlockAllocated(3, 0, 1), ev.BlockReleased(1, 0, 1)]

COPIES = [
    Case(
        "copies after a write", "sampling", 2, [*_COW, write(1, 1, 30), ev.BlockCopied(1, [3], 1)], "copies come before"
    ),
    Case("copies what is free", "sampling", 2, [*_COW, ev.BlockCopied(0, [3], 1)], "block 0 is free"),
    Case("copies more than there is", "sampling", 2, [*_COW, ev.BlockCopied(1, [3], 2)], "2 slots of block 1 | has 1"),
    Case("copies nothing", "sampling", 2, [*_COW, ev.BlockCopied(1, [3], 0)], "0 slots of block 1"),
    Case("copies nowhere", "sampling", 2, [*_COW, ev.BlockCopied(1, [], 1)], "destinations [] | none"),
    Case("copies twice to one", "sampling", 2, [*_COW, ev.BlockCopied(1, [3, 3], 1)], "[3, 3] | twice"),
    Case(
        "copies in two events", "sampling", 2, [*_COW, *[ev.BlockCopied(1, [3], 1)] * 2], "block 1 | one event for all"
    ),
    Case("copies to itself", "sampling", 2, [*_COW, ev.BlockCopied(1, [1], 1)], "block 1 takes part in another"),
    Case(
        "copies on",
        "sampling",
        2,
        [*_COW, ev.BlockCopied(1, [3], 1), ev.BlockCopied(3, [1], 1)],
        "block 3 was copied to",
    ),
    Case("copies to what is written", "sampling", 3, [ev.BlockCopied(4, [3], 1)], "block 3 | 2 slots written"),
    Case("copies another block", "sampling", 2, [*_COW, ev.BlockCopied(4, [3], 1)], "replaces block 1, not block 4"),
    Case(
        "copies to another request",
        "regions",
        4,
        [
            ev.RequestAborted(0, "x"),
            ev.BlockReleased(8, 1, 0),
            ev.RegionFreed(0, 0, 8),
            ev.RequestAdmitted(1, [2]),
            ev.RegionReserved(1, 0, 8, 6),
            ev.BlockAllocated(0, 2, 0),
            ev.BlockCopied(8, [0], 2),
        ],
        "2 slots | request=0 | request=1",
    ),
    Case("copies from what holds nothing", "regions", 2, [ev.BlockCopied(8, [0], 1)], "1 slots of block 8 | has 0"),
]

SWAPS = [
    Case(
        "is preempted in another mode", "swapping", 3, [ev.Preempted(0, [0, 1], "hope")], "'hope' | recompute nor swap"
    ),
    Case("is preempted while it waits", "recompute", 4, [ev.Preempted(1, [1], "recompute")], "is waiting | running"),
    Case("is preempted in part", "swapping", 3, [ev.Preempted(0, [0], "swap")], "[0] | that go on are [0, 1]"),
    Case("is preempted and stays", "recompute", 3, [ev.Preempted(1, [1], "recompute")], "(waiting) | holds [1]"),
    Case(
        "is preempted in mid-step",
        "recompute",
        3,
        [write(2, 1, 13), ev.Preempted(1, [1], "recompute")],
        "slots were written | before",
    ),
    Case("moves out while it runs", "swapping", 3, [ev.SwappedOut(0, [(5, 2)], 9)], "is running | must be swapped"),
    Case(
        "moves other blocks out",
        "swapping",
        3,
        [ev.Preempted(0, [0, 1], "swap"), ev.SwappedOut(0, [(5, 2), (0, 0)], 9)],
        "[0, 5] | holds [0, 1, 5]",
    ),
    Case(
        "moves out past the pool's end",
        "swapping",
        3,
        [ev.Preempted(0, [0, 1], "swap"), ev.SwappedOut(0, [(5, 4), (0, 0), (1, 3)], 9)],
        "CPU block 4 | there are 4",
    ),
    Case(
        "moves out over another",
        "swapping",
        5,
        [ev.Preempted(1, [2], "swap"), ev.SwappedOut(1, [(5, 2)], 9)],
        "CPU block 2 is in use",
    ),
    Case(
        "moves two into one",
        "swapping",
        3,
        [ev.Preempted(0, [0, 1], "swap"), ev.SwappedOut(0, [(5, 2), (0, 2), (1, 3)], 9)],
        "(0, 2) | to one place",
    ),
    Case(
        "is swapped out to nowhere",
        "swapping",
        3,
        [
            ev.Preempted(0, [0, 1], "swap"),
            *let_go(0, 0),
            ev.BlockReleased(5, 0, 1),
            *let_go(1, 1),
            *let_go(5, 1),
        ],
        "request 0 is swapped out | no CPU block",
    ),
    Case("moves in what is here", "swapping", 3, [ev.SwappedIn(0, [(2, 3)], 9)], "is running | must be swapped"),
    Case("moves other blocks in", "swapping", 5, [ev.SwappedIn(0, [(2, 3)], 9)], "[2] come back | has [0, 2, 3]"),
    Case(
        "moves into another table",
        "swapping",
        5,
        [
            ev.BlockAllocated(3, 0, 0),
            ev.BlockAllocated(4, 0, 1),
            ev.BlockAllocated(0, 1, 0),
            ev.BlockAllocated(1, 1, 1),
            ev.SwappedIn(0, [(2, 3), (0, 4), (3, 1)], 9),
        ],
        "table [0, 1] | must have [3, 1]",
    ),
    Case(
        "moves in over what is written",
        "swapping",
        5,
        [
            ev.BlockShared(5, 0, 0, 2),
            ev.BlockAllocated(4, 0, 1),
            ev.BlockShared(5, 1, 0, 3),
            ev.BlockAllocated(0, 1, 1),
            ev.SwappedIn(0, [(2, 5), (0, 4), (3, 0)], 9),
        ],
        "block 5 has 1 slots written",
    ),
    Case("moves in by half", "swapping", 5, [ev.BlockAllocated(3, 0, 0)], "(swapped) | holds [3]"),
    Case("moves in mid-step", "swapping", 5, [write(5, 1, 41), ev.SwappedIn(0, [], 9)], "swapping comes before"),
]

REGIONS = [
    Case("reserves for nobody", "batch", 1, [ev.RegionReserved(9, 0, 4, 4)], "no request 9"),
    Case("reserves after its end", "regions", 5, [ev.RegionReserved(0, 0, 8, 6)], "is aborted | must be waiting"),
    Case("reserves nothing", "batch", 1, [ev.RegionReserved(0, 0, 4, 0)], "4 slots where 0 are needed"),
    Case("reserves less than it needs", "batch", 1, [ev.RegionReserved(0, 0, 4, 5)], "4 slots where 5 are needed"),
    Case("reserves past the end", "batch", 1, [ev.RegionReserved(0, 6, 4, 4)], "slots 6 to 9 | memory has 8"),
    Case("reserves below zero", "batch", 1, [ev.RegionReserved(0, -1, 4, 4)], "slots -1 to 2"),
    Case("reserves over another", "regions", 2, [ev.RegionReserved(1, 4, 8, 6)], "4 to 11 overlap | request 0, 0 to 7"),
    Case(
        "gives what is not reserved",
        "batch",
        1,
        [ev.RequestAdmitted(0, [0]), ev.BlockAllocated(0, 0, 0)],
        "block 0 is free",
    ),
    Case(
        "gives another's region",
        "batch",
        1,
        [ev.RequestAdmitted(0, [0]), ev.RegionReserved(1, 0, 4, 4), ev.BlockAllocated(0, 0, 0)],
        "region 0 is of request 1 | sequence 0 of 0",
    ),
    Case(
        "gives a region twice",
        "regions",
        2,
        [ev.SequenceForked(2, 0), ev.BlockAllocated(8, 2, 0)],
        "region 8 is in use by sequence [1]",
    ),
    Case(
        "gives two regions",
        "batch",
        1,
        [
            ev.RequestAdmitted(0, [0]),
            ev.RegionReserved(0, 0, 4, 4),
            ev.RegionReserved(0, 4, 4, 4),
            ev.BlockAllocated(0, 0, 0),
            ev.BlockAllocated(4, 0, 1),
        ],
        "has [0] | logical block 1",
    ),
    Case("lets go and goes on", "regions", 2, [ev.BlockReleased(8, 1, 0)], "sequence 1 goes on"),
    Case("frees what is not reserved", "regions", 2, [ev.RegionFreed(0, 4, 8)], "block 4 is free"),
    Case("frees another's region", "regions", 2, [ev.RegionFreed(1, 0, 8)], "region 0 | of request 0"),
    Case("frees another size", "regions", 2, [ev.RegionFreed(0, 0, 4)], "region 0 has 8 slots"),
    Case("frees what is in use", "regions", 2, [ev.RegionFreed(0, 0, 8)], "region 0 is in use by sequence [0]"),
    Case(
        "keeps a region after its end",
        "regions",
        4,
        [ev.RequestAborted(0, "x"), ev.BlockReleased(8, 1, 0), ev.RegionFreed(0, 0, 8)],
        "region 8 | aborted",
    ),
    Case("fails for what runs", "regions", 2, [ev.ReservationFailed(0, 6, 1, 0, 0)], "is running | must be waiting"),
    Case("fails with other slots", "regions", 2, [ev.ReservationFailed(1, 6, 1, 0, 4)], "4 unallocated | counted 0"),
    Case("fails with a larger gap", "batch", 1, [ev.ReservationFailed(0, 9, 1, 9, 8)], "9 slots | free run has 8"),
    Case(
        "fails where there is room", "batch", 1, [ev.ReservationFailed(0, 4, 1, 8, 8)], "4 slots are needed | 8 can be"
    ),
    Case("reserves in paged memory", "growing", 1, [ev.RegionReserved(0, 0, 4, 4)], "paged | no such thing"),
    Case("preempts where nothing is", "regions", 2, [ev.Preempted(0, [0, 1], "recompute")], "orca_max | no such thing"),
    Case("shares where nothing is", "regions", 2, [ev.BlockShared(0, 1, 1, 2)], "orca_max | no such thing"),
]

IMPOSSIBLE = {
    f"{topic} {case.name}": case
    for topic, cases in (
        ("request", REQUESTS),
        ("sequence", SEQUENCES),
        ("step", STEPS),
        ("block", BLOCKS),
        ("cache", CACHE),
        ("slots", SLOTS),
        ("copy", COPIES),
        ("swap", SWAPS),
        ("region", REGIONS),
    )
    for case in cases
}
