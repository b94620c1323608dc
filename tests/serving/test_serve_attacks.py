"""A service that is attacked: clients that never finish, bombs, floods. Good clients are answered all the while."""

import contextlib
import json
import select
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.serving.service import CLIENT, JSON, NPY, NPZ, packed, post, rows, service
from tests.serving.test_serve import counted
from tests.serving.test_serve_limits import claimed, npy, zipped

GOOD = {"inputs": rows()[:1].tolist()}
CONNECTIONS, SECONDS = 40, 60


@pytest.fixture(scope="module")
def attacked(rows_graph):
    limits = ["--timeout", "30", "--idle", "4", "--max-rows", "500", "--max-connections", str(CONNECTIONS)]
    with service(rows_graph, *limits, "--max-bytes", "4MB", "--max-in-flight", "8MB") as running:
        running.right = post(running, GOOD).json()
        yield running
        log = running.stop()  # every line is JSON, or this fails
    assert running.process.returncode == 0
    assert not [entry for entry in log if entry.get("status", 200) >= 500 and entry["status"] != 503]
    assert not [entry for entry in log if entry["level"] == "error"]


def address(running):
    url = httpx.URL(running.url)
    return url.host, url.port


def connect(running, content=b""):
    line = socket.create_connection(address(running), SECONDS)
    line.sendall(content)
    return line


def ended(line):
    """Whether the service ends this connection (it is waited for); what it said before."""
    said = b""
    try:
        while part := line.recv(65536):
            said += part
    except ConnectionError:
        return said
    return said


def head(length, kind=JSON):
    first = "POST /predict HTTP/1.1\r\nHost: localhost\r\n"
    return f"{first}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n".encode()


def good(running):
    """A good request on a connection of its own gets the right answer."""
    answer = httpx.post(running.url + "/predict", json=GOOD, timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    assert answer.json() == running.right


def memory(running):
    """Megabytes that the process holds."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def test_connections_that_never_ask_are_closed_and_others_are_served(attacked):
    idle, half_a_line, half_a_header = b"", b"POST /predict HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
    contents = (idle, half_a_line, half_a_header) * CONNECTIONS  # more than it keeps open
    lines = [connect(attacked, content) for content in contents]
    good(attacked)
    assert [ended(line) for line in lines] == [b""] * len(lines)


def test_half_a_header_after_a_good_request_is_closed_too(attacked):
    body = json.dumps(GOOD).encode()
    line = connect(attacked, head(len(body)) + body + b"GET /health HT")
    assert ended(line).startswith(b"HTTP/1.1 200 ")


def test_headers_that_do_not_end_are_refused(attacked):
    line = connect(attacked, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-Long: x\r\n" * 4000)
    assert ended(line).startswith(b"HTTP/1.1 400 ")
    good(attacked)


def test_unfinished_bodies_hold_little_memory_and_small_requests_pass(attacked):
    good(attacked)
    before, half = memory(attacked), b" " * 2_000_000
    lines = [connect(attacked) for _ in range(CONNECTIONS // 2)]
    with ThreadPoolExecutor(4) as pool:

        def send(line):
            line.sendall(head(4_000_000))
            try:
                line.sendall(half)
            except ConnectionError:
                return

        list(pool.map(send, lines))
    good(attacked)
    assert memory(attacked) - before < 60
    said = {line.recv(12) for line in select.select(lines, [], [])[0]}
    assert said == {b"HTTP/1.1 503"}  # those for whom there was no room; the others may go on sending
    for line in lines:
        line.close()


BOMBS = {
    "packed rows": (lambda: zipped({"inputs.npy": npy(np.zeros((300_000, 3), np.float32))}), NPZ, 413),
    "packed zeros": (lambda: zipped({"inputs.npy": b"\0" * 100_000_000}), NPZ, 413),
    "rows": (lambda: packed(np.zeros((100_000, 3), np.float32)), NPY, 413),
    "rows in JSON": (lambda: json.dumps({"inputs": [[1, 2, 3]] * 100_000}).encode(), JSON, 413),
    "deep": (lambda: b'{"inputs":' + b"[" * 3_900_000, JSON, 413),
    "wide": (lambda: b'{"inputs":[' + b"[]," * 1_300_000 + b"[]]}", JSON, 413),
    "deep objects": (lambda: b'{"inputs":' + b'{"a":' * 700_000, JSON, 413),
    "a long text": (lambda: b'{"inputs":"' + b"x" * 3_900_000 + b'"}', JSON, 422),
    "a long number": (lambda: b'{"inputs":' + b"9" * 3_900_000 + b"}", JSON, 400),
    "65 axes": (lambda: claimed((1,) * 65, numbers=b"\0" * 4), NPY, 422),
    "no rows of 2^62": (lambda: claimed((0, 2**62, 2**62)), NPY, 422),
    "no rows, packed": (lambda: zipped({"inputs.npy": claimed((0, 2**62, 2**62))}), NPZ, 422),
    "infinity": (lambda: packed(np.full((2, 3), np.inf)), NPY, 422),
    "beyond float32": (lambda: packed(np.full((2, 3), 1e300)), NPY, 422),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_and_good_requests_beside_them_are_right(attacked, bomb):
    content, kind, status = BOMBS[bomb]
    headers = {"Content-Type": kind}
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(httpx.post, attacked.url + "/predict", content=content(), headers=headers, timeout=SECONDS)
        good(attacked)
        answer = asked.result()
    assert answer.status_code == status, answer.text
    assert ":" in answer.json()["reason"]  # and the remedy


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
def test_compressed_bodies_are_not_unpacked(attacked, coding):
    body = zlib.compress(b" " * 10**7)
    headers = {"Content-Type": JSON, "Content-Encoding": coding}
    answer = httpx.post(attacked.url + "/predict", content=body, headers=headers)
    assert answer.status_code == 415


def test_a_body_in_tiny_pieces_is_refused(attacked):
    start = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    line = connect(attacked, start)
    with contextlib.suppress(ConnectionError):
        line.sendall(b"1\r\n \r\n" * 50_000)
    assert ended(line)[:13] in (b"HTTP/1.1 400 ", b"")  # what it said may be lost with what it did not read
    good(attacked)


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        head("-1"),
        head("1, 2"),
        b"\0" * 100,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\xff\xff\xff",
    ],
)
def test_what_is_no_http_is_closed(attacked, content):
    ended(connect(attacked, content))
    good(attacked)


def test_an_answer_that_nobody_reads_is_given_up(attacked):
    body = json.dumps({"inputs": rows()[:400].tolist()}).encode()
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(2)
    line.connect(address(attacked))
    with contextlib.suppress(ConnectionError, TimeoutError):  # at last it no longer reads either
        for _ in range(400):  # pipelined: many answers, of which none is read
            line.sendall(head(len(body)) + body)
    good(attacked)
    while counted(attacked)["solera_open_requests"] > 1:  # until this connection is closed
        time.sleep(0.1)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "localhost@evil.example"])
def test_a_strangers_name_is_not_answered(attacked, host):
    for path in ("/", "/predict", "/model", "/health", "/docs"):
        answer = CLIENT.get(attacked.url + path, headers={"Host": host})
        assert answer.status_code == 421
        assert "--allow-host" in answer.json()["reason"]


def test_a_flood_is_logged_in_bounded_json(attacked):
    before = len(attacked.lines)
    for _ in range(100):
        ended(connect(attacked, b"no HTTP at all\r\n\r\n"))
    good(attacked)
    new = [json.loads(line) for line in attacked.lines[before:]]
    assert len([entry for entry in new if "Invalid HTTP" in entry["event"]]) <= 80


def test_pages_may_not_be_framed_and_nothing_is_guessed(attacked):
    for path in ("/", "/docs", "/assets/page.js"):
        headers = CLIENT.get(attacked.url + path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
