"""Requests that arrive together are answered together: one run of the graph for all of them."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from solera.serving.graph import Arrays

Run = Callable[[Arrays], Arrays]


class FullError(Exception):
    """So many rows wait already that one more request would wait in vain."""


@dataclass(eq=False)
class _Waiting:
    arrays: Arrays
    answer: asyncio.Future[Arrays] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def kind(self) -> list[tuple[int, ...]]:
        """Only rows of the same shape fit into one array."""
        return [array.shape[1:] for array in self.arrays.values()]


def joined(parts: Sequence[Arrays]) -> Arrays:
    """The rows of all, one after the other."""
    return dict(parts[0]) if len(parts) == 1 else {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}


def split(arrays: Arrays, sizes: Sequence[int]) -> list[Arrays]:
    """The rows of each again."""
    ends = np.cumsum(sizes)
    return [{k: v[end - size : end] for k, v in arrays.items()} for size, end in zip(sizes, ends, strict=True)]


def answer_all(run: Run, asked: Sequence[Arrays]) -> list[Arrays | Exception]:
    """One run for all; if it fails, one for each, so that nobody pays for another's rows."""
    try:
        said = run(joined(asked))
        return [*split(said, [len(next(iter(arrays.values()))) for arrays in asked])]
    except Exception as error:
        if len(asked) == 1:
            return [error]
        return [answer_all(run, [one])[0] for one in asked]


class Batcher:
    """Joins requests up to `max_batch` rows, for which it waits up to `max_wait` seconds; a lone caller never waits.

    Used as `async with`; the graph runs in a thread of its own. On the way out it finishes what was asked.
    """

    def __init__(
        self,
        run: Run,
        max_batch: int = 64,
        max_wait: float = 0.002,
        max_queue: int = 4096,
        seen: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self.run, self.max_batch, self.max_wait, self.max_queue, self.seen = run, max_batch, max_wait, max_queue, seen
        self._line: deque[_Waiting] = deque()
        self.waiting = 0  # rows in line
        self._arrived = asyncio.Event()
        self._together = False  # did the last run answer several requests?
        self._closing = False
        self._thread = ThreadPoolExecutor(1, "onnxruntime")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Batcher":
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def ask(self, arrays: Arrays) -> Arrays:
        """The answers for these rows, if many in parts of `max_batch`; whoever cancels it leaves the line."""
        if self._closing or self.waiting >= self.max_queue:
            raise FullError
        rows = len(next(iter(arrays.values())))
        starts = range(0, rows, self.max_batch)
        parts = [_Waiting({k: v[start : start + self.max_batch] for k, v in arrays.items()}) for start in starts]
        self._line.extend(parts)
        self.waiting += rows
        self._arrived.set()
        try:
            return joined(await asyncio.gather(*(part.answer for part in parts)))
        finally:
            for part in parts:
                part.answer.cancel()

    def _take(self, batch: list[_Waiting]) -> None:
        """Moves from the line into the batch what fits, in order; those who gave up leave the line."""
        left: list[_Waiting] = []
        room = self.max_batch - sum(one.rows for one in batch)
        while self._line and room > 0:
            one = self._line.popleft()
            alike = not batch or batch[0].kind == one.kind
            if alike and one.rows <= room and not one.answer.done():
                batch.append(one)
                room -= one.rows
            elif not one.answer.done():
                left.append(one)
                room = 0 if alike else room  # who does not fit is not overtaken
            self.waiting -= 0 if left and left[-1] is one else one.rows
        self._line.extendleft(reversed(left))

    async def _gather(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        self._take(batch)
        until = time.monotonic() + self.max_wait
        while self._together and not self._closing and sum(one.rows for one in batch) < self.max_batch:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), until - time.monotonic())
            except TimeoutError:
                break
            self._take(batch)
        return [one for one in batch if not one.answer.done()]

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._line:
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
                continue
            batch = await self._gather()
            if not batch:
                continue
            self.seen(sum(one.rows for one in batch))
            said = await loop.run_in_executor(self._thread, answer_all, self.run, [one.arrays for one in batch])
            self._together = len(batch) > 1
            for one, answer in zip(batch, said, strict=True):
                if one.answer.done():
                    continue
                if isinstance(answer, Exception):
                    one.answer.set_exception(answer)
                else:
                    one.answer.set_result(answer)
