import copy

from tests.engine.runs import Run
from tests.engine.tiny_configs import build


def test_a_seed_gives_the_same_text_whatever_the_batch_around_it():
    model = build("llama", 3)
    settings = {"max_tokens": 20, "temperature": 0.9, "top_p": 0.95, "seed": 1234, "ignore_eos": True}
    alone = Run(copy.deepcopy(model))
    alone.open("a", num_blocks=64, block_size=4)
    alone.submit("a", [5, 6, 7], **settings)
    alone.drain()
    crowd = Run(copy.deepcopy(model))
    crowd.open("a", num_blocks=24, block_size=4)
    for length in (9, 3, 14):
        crowd.submit("a", list(range(length)), max_tokens=20, temperature=1.0, ignore_eos=True)
    crowd.submit("a", [5, 6, 7], **settings)
    crowd.drain()
    assert crowd.outputs("a")[3] == alone.outputs("a")[0]
    assert len(set(alone.outputs("a")[0])) > 3


def test_other_seeds_give_other_texts():
    run = Run(build("llama", 3))
    run.open("a", num_blocks=64, block_size=4)
    for seed in (1, 2, 1):
        run.submit("a", [5, 6, 7], max_tokens=20, temperature=1.0, seed=seed, ignore_eos=True)
    run.drain()
    first, second, again = run.outputs("a")
    assert first == again != second
