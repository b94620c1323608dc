"""`solera serve STUDENT`: ask it over HTTP, or try it in a browser."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: solera serve solera-demo/students/Proxy --port 8000"


def serve(
    student: Annotated[Path, typer.Argument(help="The folder of a student, or an .onnx file that solera export made.")],
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in, without any lock.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes any that is free.")] = 8000,
    max_batch: Annotated[int, typer.Option(help="Rows that are computed together.")] = 64,
    max_wait_ms: Annotated[
        float, typer.Option(help="Milliseconds to wait for others, when several are asking; a lone caller never waits.")
    ] = 2.0,
    max_queue: Annotated[int, typer.Option(help="Rows that may wait; more requests get 503.")] = 4096,
    max_bytes: Annotated[str, typer.Option(help="Largest body; more gets 413.")] = "16MB",
    timeout: Annotated[float, typer.Option(help="Seconds for a request; more gets 408 or 504.")] = 10.0,
    threads: Annotated[int, typer.Option(help="Threads of onnxruntime; 0: one for each core.")] = 0,
    max_rows: Annotated[int, typer.Option(help="Rows, texts or sentences of one request; more get 413.")] = 4096,
    max_tokens: Annotated[int, typer.Option(help="Tokens of one request, of taggers and translators.")] = 16_384,
    max_in_flight: Annotated[str, typer.Option(help="Bytes of all large requests together; more get 503.")] = "64MB",
    max_connections: Annotated[int, typer.Option(help="Open at once; the one that waits longest is closed.")] = 1024,
    idle: Annotated[float, typer.Option(help="Seconds that a connection may stay open without a request.")] = 30.0,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name it may be called by, beside localhost and addresses; '*': any.")
    ] = None,
) -> None:
    """Serve a student: /predict for programs, a page at / for people, /docs, /health and /metrics.

    Logs one line of JSON per request to stderr. SIGTERM or Ctrl-C finishes what was accepted, then ends.
    """
    from solera.serving import Settings
    from solera.serving import serve as start
    from solera.serving.settings import bytes_of

    settings = Settings(
        host=host,
        port=port,
        max_batch=max_batch,
        max_wait_ms=max_wait_ms,
        max_queue=max_queue,
        max_bytes=bytes_of(max_bytes),
        timeout=timeout,
        threads=threads if threads else None,
        max_rows=max_rows,
        max_tokens=max_tokens,
        max_in_flight=bytes_of(max_in_flight),
        max_connections=max_connections,
        idle=idle,
        hosts=allow_host or [],
    )
    start(student, settings)
