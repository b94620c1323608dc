"""A student through huggingface_hub's own client and a small server that keeps repositories as the Hub does."""

import base64
import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from solera import ProxyDirichlet, Student
from solera.nn import MLP

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """What the client asks of the Hub to make a repository, to commit files to it and to read them again."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format, *arguments):
        pass

    def answer(self, content, status=200, headers=()):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (("X-Repo-Commit", COMMIT), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self.chunked()
        address = f"http://{self.headers['Host']}"
        if self.path == "/api/repos/create":
            told = json.loads(body)
            self.server.asked.append(told)
            return self.answer({"url": f"{address}/{told['organization']}/{told['name']}"})
        if "/preupload/" in self.path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            return self.answer({"files": files})
        if "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.server.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            repository = self.path.removeprefix("/api/models/").split("/commit/")[0]
            return self.answer({"commitUrl": f"{address}/{repository}/commit/{COMMIT}", "commitOid": COMMIT})
        if "/branch/" in self.path:
            self.server.asked.append(self.path)
        return self.answer({})  # validate-yaml, and a new branch

    def chunked(self):
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_GET(self):
        files = self.server.files
        if "/resolve/" in self.path:
            content = files[self.path.split("/resolve/")[1].split("/", 1)[1]]
            return self.answer(content, headers=[("ETag", f'"{hashlib.sha1(content).hexdigest()}"')])
        if "/tree/" in self.path:
            kept = [
                {"type": "file", "path": path, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                for path, c in files.items()
            ]
            return self.answer(kept)
        siblings = [{"rfilename": path} for path in files]
        return self.answer(
            {"id": "somebody/student", "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
        )

    def do_HEAD(self):
        self.do_GET()


@pytest.fixture
def hub(monkeypatch):
    pytest.importorskip("huggingface_hub")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.asked = {}, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


ROUND_TRIP = """
import sys, torch
from solera import Student
student = Student.load(sys.argv[1])
print(student.push_to_hub("somebody/student", private=True, token="hf_secret"))
x = torch.linspace(-2, 2, 12).reshape(3, 4)
for offline in (False, True):
    again = Student.from_pretrained("somebody/student", token="hf_secret", local_files_only=offline)
    assert torch.equal(again.predict(x).knowledge, student.predict(x).knowledge)
    assert again.class_names == student.class_names
"""


def test_to_the_hub_and_back(hub, tmp_path, monkeypatch):
    """In a process of its own: the client reads the Hub's address when it is imported."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    torch.manual_seed(0)
    Student(MLP(4, 3, (8,)), ProxyDirichlet(), ["ant", "bee", "cat"]).save(tmp_path / "student")
    command = [sys.executable, "-c", ROUND_TRIP, str(tmp_path / "student")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(f"/somebody/student/commit/{COMMIT}")
    assert hub.files == {file.name: file.read_bytes() for file in (tmp_path / "student").iterdir()}
    assert "private" in (hub.asked[0].get("visibility"), "private" * bool(hub.asked[0].get("private")))


def test_a_folder_is_read_without_the_hub(tmp_path):
    torch.manual_seed(0)
    student = Student(MLP(4, 3, (8,)), ProxyDirichlet(), ["ant", "bee", "cat"])
    assert student.save_pretrained(tmp_path / "student") == tmp_path / "student"
    again = Student.from_pretrained(tmp_path / "student")
    x = torch.randn(5, 4)
    assert torch.equal(again.predict(x).mean, student.predict(x).mean)
    with pytest.raises(ValueError, match="not those of this MLP"):
        Student.from_pretrained(tmp_path / "student", MLP(4, 3, (9,)))
