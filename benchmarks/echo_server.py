"""The least that can stand between HTTP and onnxruntime: the yardstick of the service. No checks, no limits."""

import json
import socket
import sys

import numpy as np
import onnxruntime
import uvicorn


def answer_until_terminated() -> None:
    """`python -m benchmarks.echo_server GRAPH`: prints its port, then answers until it is terminated."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    async def app(scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        rows = np.asarray(json.loads(body)["inputs"], np.float32)
        answer = session.run(None, {name: rows})[0]
        content = json.dumps({"mean": answer.tolist()}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # or Nagle stays on: 40 ms
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", ws="none")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    answer_until_terminated()
