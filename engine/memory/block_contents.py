"""What the slots of blocks hold, as the books say it: tokens and their texts. The tensors are the model runner's."""

from __future__ import annotations

from engine.events import BlockState


class BlockContents:
    """Tokens and texts of the blocks that are in use or kept, by number, each from slot 0 on."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}
        self.texts: dict[int, list[str]] = {}

    def count(self, block: int) -> int:
        """Written slots."""
        return len(self.tokens.get(block, ()))

    def start(self, block: int) -> None:
        """The block is in use from now on and holds nothing."""
        self.tokens[block], self.texts[block] = [], []

    def write(self, block: int, tokens: list[int], texts: list[str]) -> None:
        """More tokens behind those that the block holds."""
        self.tokens[block].extend(tokens)
        self.texts[block].extend(texts)

    def copy(self, block: int, other: BlockContents, source: int, count: int) -> None:
        """Let ``block`` hold the first ``count`` slots of ``source``, a block of ``other``."""
        self.tokens[block] = other.tokens[source][:count]
        self.texts[block] = other.texts[source][:count]

    def clear(self, block: int) -> None:
        self.tokens.pop(block, None)
        self.texts.pop(block, None)

    def state(self, block: int, refs: int, digest: str = "") -> BlockState:
        return BlockState(block, refs, list(self.tokens[block]), list(self.texts[block]), digest)
