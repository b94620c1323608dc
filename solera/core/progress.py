"""Progress of long work on standard error: a bar on a terminal, a line now and then elsewhere, nothing when quiet."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[str], None]

_SECONDS_BETWEEN_LINES = 10.0
_quiet = False


@contextmanager
def quiet(enabled: bool = True) -> Iterator[None]:
    """No progress inside this block."""
    global _quiet
    before, _quiet = _quiet, enabled
    try:
        yield
    finally:
        _quiet = before


@contextmanager
def progress(title: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Yields `advance(note)`, to be called once a step; the note (a loss, say) is shown beside the bar."""
    if _quiet or total <= done:
        yield lambda note: None
    elif sys.stderr.isatty():
        with _bar(title, total, done) as advance:
            yield advance
    else:
        yield _lines(title, total, done)


@contextmanager
def _bar(title: str, total: int, done: int) -> Iterator[Advance]:
    from rich import progress as rich  # 0.2 s that nobody need wait for without a terminal
    from rich.console import Console

    bar = rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=total, completed=done, note="")
        yield lambda note: bar.update(task, advance=1, note=note)


def _lines(title: str, total: int, done: int) -> Advance:
    started = last = time.monotonic()
    count = first = done

    def advance(note: str) -> None:
        nonlocal count, last
        count += 1
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES and count < total:
            last = now
            left = (now - started) / (count - first) * (total - count)
            print(f"{title}: {count}/{total}, about {left:.0f} s left {note}".rstrip(), file=sys.stderr, flush=True)

    return advance


def tell(text: str) -> None:
    """One line on standard error, unless quiet."""
    if not _quiet:
        print(text, file=sys.stderr, flush=True)
