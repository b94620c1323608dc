"""Requests that are joined, and split again: nobody lost, mixed up, or hurt by another."""

import asyncio
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.serving.batching import Batcher, FullError


def doubled(arrays):
    """Stands in for a graph; refuses negative numbers, whoever sent them."""
    if (arrays["inputs"] < 0).any():
        raise ValueError("negative")
    return {"mean": 2 * arrays["inputs"]}


class Held:
    """A graph that waits until it is let go, and remembers the sizes of its runs."""

    def __init__(self):
        self.go, self.sizes = threading.Event(), []

    def __call__(self, arrays):
        self.sizes.append(len(arrays["inputs"]))
        assert self.go.wait(30)
        return doubled(arrays)


def column(*values):
    return {"inputs": np.array(values, float)[:, None]}


async def until(true):
    while not true():
        await asyncio.sleep(0.001)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 12), st.sampled_from([0.0, 0.001]))
def test_every_request_gets_its_own_rows(sizes, max_batch, max_wait):
    starts = np.cumsum([0, *sizes])
    parts = [np.arange(s, s + n, dtype=float) for s, n in zip(starts, sizes, strict=False)]
    runs = []

    async def all_at_once():
        async with Batcher(doubled, max_batch, max_wait, seen=runs.append) as line:
            return await asyncio.gather(*(line.ask(column(*part)) for part in parts))

    for part, said in zip(parts, asyncio.run(all_at_once()), strict=True):
        np.testing.assert_array_equal(said["mean"][:, 0], 2 * part)
    assert sum(runs) == sum(sizes)
    assert max(runs) <= max_batch


def test_requests_that_wait_are_joined_small_ones_first_and_rows_of_other_shapes_are_not():
    async def ask():
        held = Held()
        async with Batcher(held, max_batch=5) as line:
            first = asyncio.create_task(line.ask(column(0)))
            await until(lambda: held.sizes)
            waiting = [asyncio.create_task(line.ask(column(*range(n)))) for n in (2, 2, 3, 1)]
            wide = asyncio.create_task(line.ask({"inputs": np.ones((1, 4))}))
            await until(lambda: line.waiting == 9)
            held.go.set()
            said = await asyncio.gather(first, *waiting, wide)
        return held.sizes, [len(one["mean"]) for one in said], line.waiting

    sizes, lengths, left = asyncio.run(ask())
    assert sizes == [1, 5, 1, 3]  # 1 + 2 + 2: small ones first; the other shape, of one row; then 3
    assert lengths == [1, 2, 2, 3, 1, 1]
    assert left == 0


def test_one_bad_request_does_not_hurt_those_it_was_joined_with():
    async def ask():
        held = Held()
        async with Batcher(held, max_batch=8) as line:
            first = asyncio.create_task(line.ask(column(0)))
            await until(lambda: held.sizes)
            rest = [asyncio.create_task(line.ask(column(n))) for n in (1, -2, 3)]
            await until(lambda: line.waiting == 3)
            held.go.set()
            return await asyncio.gather(first, *rest, return_exceptions=True)

    first, one, bad, three = asyncio.run(ask())
    assert isinstance(bad, ValueError)
    assert (first["mean"].item(), one["mean"].item(), three["mean"].item()) == (0, 2, 6)


def test_who_gives_up_leaves_the_line_and_the_others_stay():
    async def ask():
        held = Held()
        async with Batcher(held, max_batch=4) as line:
            running = asyncio.create_task(line.ask(column(0)))
            await until(lambda: held.sizes)
            large, small = (asyncio.create_task(line.ask(column(*values))) for values in (range(10), [7]))
            await until(lambda: line.waiting == 11)
            large.cancel()
            running.cancel()  # the graph is busy with this one: it may finish, nobody listens
            await asyncio.sleep(0)
            held.go.set()
            return await small, held.sizes, line.waiting

    said, sizes, left = asyncio.run(ask())
    assert said["mean"].item() == 14
    assert sizes == [1, 1]
    assert left == 0


def test_a_full_line_takes_no_more_and_the_way_out_finishes_what_was_asked():
    async def ask():
        held = Held()
        async with Batcher(held, max_batch=2, max_queue=3) as line:
            asked = [asyncio.create_task(line.ask(column(0)))]
            await until(lambda: held.sizes)
            asked += [asyncio.create_task(line.ask(column(1, 2))), asyncio.create_task(line.ask(column(3, 4)))]
            await until(lambda: line.waiting == 4)
            with pytest.raises(FullError):
                await line.ask(column(5))
            held.go.set()
        assert held.sizes == [1, 2, 2]
        with pytest.raises(FullError):
            await line.ask(column(6))
        return [said["mean"].ravel().tolist() for said in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == [[0], [2, 4], [6, 8]]
