"""Requests that arrive together are answered together: one run of the graph for all of them, small requests first."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from solera.serving.graph import Arrays

Run = Callable[[Arrays], Arrays]
LOOK = 64  # parts of other shapes, or too large for what is left, that are looked past when a batch is filled


class FullError(Exception):
    """So many rows wait already that one more request would wait in vain."""


@dataclass(eq=False)
class _Part:
    """Rows of one request that are computed together."""

    arrays: Arrays
    rows: int
    kind: Hashable
    small: bool  # does its request fit one batch?
    waiting: bool = True  # in line
    answer: asyncio.Future[Arrays] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


def count_rows(arrays: Arrays) -> int:
    """The length of the first axis."""
    return len(next(iter(arrays.values())))


def joined(parts: Sequence[Arrays]) -> Arrays:
    """The rows of all, one after the other."""
    return dict(parts[0]) if len(parts) == 1 else {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}


def split(arrays: Arrays, sizes: Sequence[int]) -> list[Arrays]:
    """The rows of each again."""
    if len(sizes) == 1:
        return [arrays]
    ends = itertools.accumulate(sizes)
    return [{k: v[end - size : end] for k, v in arrays.items()} for size, end in zip(sizes, ends, strict=True)]


def answer_all(run: Run, asked: Sequence[Arrays]) -> list[Arrays | Exception]:
    """One run for all; if it fails, one for each, so that nobody pays for another's rows."""
    try:
        return [*split(run(joined(asked)), [count_rows(arrays) for arrays in asked])]
    except Exception as error:
        if len(asked) == 1:
            return [error]
        return [answer_all(run, [one])[0] for one in asked]


class Batcher:
    """Joins requests up to `max_batch` rows, for which it waits up to `max_wait` seconds; a lone caller never waits.

    The line is fair (start-time fair queueing): a part gets the tag V + the rows of its request up to it, where V is
    the largest tag that has run, and the smallest tag runs next. So one row passes a request of thousands, and n
    requests that wait together each get 1/n of the rows that run; none waits for ever.

    Used as `async with`; the graph runs in a thread of its own, or, where runs have taken less than `inline` seconds,
    on the event loop: a thread would take longer to wake up. On the way out it finishes what was asked.
    """

    def __init__(
        self,
        run: Run,
        max_batch: int = 64,
        max_wait: float = 0.002,
        max_queue: int = 4096,
        seen: Callable[[int], None] = lambda rows: None,
        inline: float = 0.0,
    ) -> None:
        self.run, self.max_batch, self.max_wait, self.max_queue, self.seen = run, max_batch, max_wait, max_queue, seen
        self.inline = inline
        self._line: list[tuple[int, int, _Part]] = []  # a heap by tag, then by arrival
        self._clock, self._arrivals = 0, itertools.count()
        self._small = self._large = 0  # rows in line, of requests that fit one batch and of others
        self._costs: dict[int, float] = {}  # seconds of a run, the longest lately, by the bits of its number of rows
        self._arrived = asyncio.Event()
        self._together = False  # did the last run answer several requests?
        self._closing = False
        self._thread = ThreadPoolExecutor(1, "onnxruntime")
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Rows in line."""
        return self._small + self._large

    async def __aenter__(self) -> "Batcher":
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def _leave(self, part: _Part) -> None:
        """Out of the line, to be run or because nobody wants it any more."""
        if part.waiting:
            part.waiting = False
            self._count(part, -1)

    def _count(self, part: _Part, sign: int) -> None:
        if part.small:
            self._small += sign * part.rows
        else:
            self._large += sign * part.rows

    async def ask(self, arrays: Arrays, kind: Hashable = None) -> Arrays:
        """The answers for these rows, if many in parts of `max_batch`; whoever cancels it leaves the line.

        Only rows of the same shapes, and of the same `kind` where the caller names one, are joined. Requests that fit
        one batch are turned away only by others of their size; a larger one that finds the line empty is always taken.
        """
        rows = count_rows(arrays)
        small = rows <= self.max_batch
        full = self._small >= self.max_queue if small else self._large > 0 and self.waiting + rows > self.max_queue
        if self._closing or full:
            raise FullError
        kind = (kind, *(array.shape[1:] for array in arrays.values()))
        parts = []
        for start in range(0, rows, self.max_batch):
            piece = arrays if small else {k: v[start : start + self.max_batch] for k, v in arrays.items()}
            part = _Part(piece, count_rows(piece), kind, small)
            parts.append(part)
            self._count(part, 1)
            heapq.heappush(self._line, (self._clock + start + part.rows, next(self._arrivals), part))
        self._arrived.set()
        try:
            if small:
                return await parts[0].answer
            return joined(await asyncio.gather(*(part.answer for part in parts)))
        finally:
            for part in parts:
                self._leave(part)
                part.answer.cancel()
                part.arrays = {}

    def _take(self, batch: list[_Part]) -> None:
        """Moves from the line into the batch what fits, by tags."""
        room = self.max_batch - sum(part.rows for part in batch)
        passed = []
        while self._line and room > 0 and len(passed) < LOOK:
            entry = heapq.heappop(self._line)
            tag, _, part = entry
            if not part.waiting:
                continue
            if part.rows > room or (batch and part.kind != batch[0].kind):
                passed.append(entry)
                continue
            self._clock = max(self._clock, tag)
            self._leave(part)
            batch.append(part)
            room -= part.rows
        for entry in passed:
            heapq.heappush(self._line, entry)

    async def _gather(self) -> list[_Part]:
        batch: list[_Part] = []
        self._take(batch)
        until = time.monotonic() + self.max_wait
        while self._together and not self._closing and sum(part.rows for part in batch) < self.max_batch:
            self._arrived.clear()
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self._arrived.wait()
            except TimeoutError:
                break
            self._take(batch)
        return [part for part in batch if not part.answer.done()]

    async def _answer(self, asked: list[Arrays], rows: int) -> list[Arrays | Exception]:
        start, size = time.perf_counter(), rows.bit_length()
        known = self._costs.get(size)
        if known is not None and known < self.inline:
            said = answer_all(self.run, asked)
        else:
            said = await asyncio.get_running_loop().run_in_executor(self._thread, answer_all, self.run, asked)
        self._costs[size] = max(time.perf_counter() - start, 0.9 * (known or 0.0))
        return said

    async def _work(self) -> None:
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
            rows = sum(part.rows for part in batch)
            self.seen(rows)
            said = await self._answer([part.arrays for part in batch], rows)
            self._together = len(batch) > 1
            for part, answer in zip(batch, said, strict=True):
                if part.answer.done():
                    continue
                if isinstance(answer, Exception):
                    part.answer.set_exception(answer)
                else:
                    part.answer.set_result(answer)
