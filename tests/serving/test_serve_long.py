"""A long attack: a hundred thousand requests that were made up or damaged, and a good client beside them.

`make attacks` runs it; SOLERA_ATTACKS=2000 makes it shorter.
"""

import asyncio
import json
import multiprocessing
import os
import random
import time

import numpy as np
import pytest

from tests.serving.service import JSON, NPY, NPZ, packed, rows, service
from tests.serving.test_serve_attacks import address, memory
from tests.serving.test_serve_limits import claimed, zipped

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
REQUESTS = int(os.environ.get("SOLERA_ATTACKS", "100000"))
CLIENTS, QUIET = 16, 200
TOKENS = [
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    '"inputs"',
    "1",
    "-1e999",
    "NaN",
    "null",
    "true",
    '"x"',
    " ",
    "1e5",
    "0.25",
    "\\",
    '"',
]
DESCRIPTIONS = ["<f4", ">f8", "<i4", "|O", "<U9", "<f2", "|V3", "f", "<c16", "<g", "|b1"]


def damaged(draw, content):
    """A few bytes changed, left out, doubled or put in."""
    content = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at, length = draw.randrange(len(content) + 1), draw.randint(0, 9)
        piece = draw.choice([b"", draw.randbytes(length), bytes(content[at : at + length]) * 2])
        content[at : at + draw.randint(0, length)] = piece
    return bytes(content)


def body(draw):
    """Content and its type: near a good request, or far from it."""
    table = rows()[: draw.randint(1, 30)]
    good = {
        JSON: json.dumps({"inputs": table.tolist(), "threshold": draw.choice([0.5, None])}).encode(),
        NPY: packed(table.astype(draw.choice(["f4", "f8", "i4", ">f4"]))),
        NPZ: zipped({"inputs.npy": packed(table)}),
    }
    kind = draw.choice([JSON, NPY, NPZ])
    what = draw.randrange(8)
    if what == 0:
        return good[kind], kind
    if what <= 2:
        return damaged(draw, good[kind]), kind
    if what == 3:
        return "".join(draw.choices(TOKENS, k=draw.randint(1, 200))).encode(), JSON
    if what == 4:
        shape = tuple(
            draw.choice([0, 1, 3, -1, 2**31, 2**62, 10**20]) for _ in range(draw.choice([0, 1, 2, 3, 40, 65]))
        )
        return claimed(shape, draw.choice(DESCRIPTIONS), draw.randbytes(draw.randint(0, 24))), NPY
    if what == 5:
        values = [draw.choice([1.0, -0.0, 1e38, 3e38, 1e-40, float("inf"), float("nan")]) for _ in range(6)]
        return packed(np.array(values, "f4").reshape(2, 3)), NPY
    if what == 6:
        return b'{"inputs": ' + b"[" * draw.choice([10, 1000, 100_000]) + b"1" + b"]" * draw.choice(
            [0, 10, 1000]
        ) + b"}", JSON
    return zipped({"inputs.npy": packed(np.zeros((draw.choice([1, 2000]), 3), "f4"))}), draw.choice([JSON, NPY, NPZ])


def request(draw):
    """The bytes of a whole request, its head damaged at times."""
    content, kind = body(draw)
    query = draw.choice(["", "", "?threshold=0.5", "?threshold=x", "?measure=total", "?measure=%00", "?" + "a" * 2000])
    accept = draw.choice(["*/*", JSON, NPY, NPZ, "text/html", ";;;", "\u00ff"])
    path = draw.choice(
        ["/predict"] * 9 + ["/", "/health", "/model", "/metrics", "/openapi.json", "/%ff", "/../etc/passwd"]
    )
    method = draw.choice(["POST"] * 9 + ["GET", "PUT", "HEAD", "OPTIONS", "BREW"])
    host = draw.choice(["localhost"] * 9 + ["evil.example"])
    head = f"{method} {path}{query} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nAccept: {accept}\r\n"
    head = (head + f"Content-Length: {len(content)}\r\n\r\n").encode("latin-1")
    if draw.random() < 0.05:
        head = damaged(draw, head)
    return head + content


async def answer(reader):
    """Status and body of one answer; None where the connection ends without one."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        content = await asyncio.wait_for(reader.readexactly(int(lines.get(b"content-length", b"0"))), 60)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return int(head.split()[1]), content


async def attacker(place, draw, count, statuses):
    """So many requests, each on a connection of its own: after a damaged one nobody knows where the next begins."""
    for _ in range(count):
        try:
            reader, writer = await asyncio.open_connection(*place)
            writer.write(request(draw))
            if draw.random() < 0.02:
                writer.close()  # hangs up
                continue
            writer.write_eof()
            said = await answer(reader)
            writer.close()
        except OSError:  # refused, reset, or closed before it was all sent
            said = None
        status = "none" if said is None else said[0]
        statuses[status] = statuses.get(status, 0) + 1


async def good_client(place, times, going):
    """Asks for one row after the other and compares; its own seconds."""
    content = json.dumps({"inputs": rows()[:1].tolist()}).encode()
    head = (
        f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    right = None
    reader, writer = await asyncio.open_connection(*place)
    while going():
        start = time.perf_counter()
        writer.write(head.encode() + content)
        said = await answer(reader)
        times.append(time.perf_counter() - start)
        right = right or said
        assert said is not None
        assert said[0] == 200
        assert said == right
        await asyncio.sleep(0.005)
    writer.close()


async def attackers(place, count):
    """All of them at once, and what they were answered."""
    statuses, share = {}, -(-count // CLIENTS)
    await asyncio.gather(*(attacker(place, random.Random(n), share, statuses) for n in range(CLIENTS)))
    return statuses


def in_a_process_of_their_own(place, count, said):
    said.put(asyncio.run(attackers(place, count)))


def attack(place, count):
    """The seconds of good requests before and beside so many bad ones, and what those were answered.

    The attackers have a process of their own: what it costs to make their requests up is not the service's time.
    """
    quiet, busy, spawn = [], [], multiprocessing.get_context("spawn")
    asyncio.run(good_client(place, quiet, lambda: len(quiet) < QUIET))
    said = spawn.Queue()
    others = spawn.Process(target=in_a_process_of_their_own, args=(place, count, said))
    others.start()
    asyncio.run(good_client(place, busy, said.empty))
    statuses = said.get(timeout=60)
    others.join()
    return quiet, busy, statuses


def test_a_hundred_thousand_made_up_requests(rows_graph):
    with service(rows_graph, "--timeout", "30", "--max-rows", "1000") as running:
        attack(address(running), REQUESTS // 10)  # what is allocated once does not count
        before = memory(running)
        quiet, busy, statuses = attack(address(running), REQUESTS)
        after = memory(running)
        running.stop()  # every line of the log is JSON
    p99 = [1000 * float(np.percentile(times, 99)) for times in (quiet, busy)]
    print(f"\n{sum(statuses.values())} requests: {dict(sorted(statuses.items(), key=str))}")
    print(f"{len(busy)} good ones beside them, all right; p99 {p99[0]:.1f} ms quiet, {p99[1]:.1f} ms attacked")
    print(f"memory {before:.0f} MB before, {after:.0f} MB after")
    assert not [status for status in statuses if status != "none" and status >= 500]
    assert statuses[200] > 0
    assert after - before < 50
