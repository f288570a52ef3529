"""`serve` asks a running server: one in this process, whose answers and delays are known, and llama-server where it is installed."""

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cli_serve_test import CONFIG, EIGHT, MODEL
from program import ENV, HOME, cells_of
from tokenizers import Tokenizer

FIRST_S, EACH_S, REQUESTS = 0.05, 0.01, 8
PROGRAM = HOME / ".venv-peers/llama.cpp/llama-server"
ENV_HERE = {**ENV, "KVLAB_PEERS_PYTHON": sys.executable}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.whole(200, {"data": [{"id": "tiny"}]})

    def whole(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_POST(self):
        server, body = self.server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.running += 1
            server.most = max(server.most, server.running)
            number = len(server.bodies)
        if number == server.fails:
            self.whole(500, {"error": "out of\nslots"})
        else:
            self.stream(body)
        with server.lock:
            server.running -= 1

    def stream(self, body):
        self.send_response(200)
        self.end_headers()
        time.sleep(FIRST_S)
        for i in range(body["max_tokens"]):
            time.sleep(EACH_S if i else 0)
            self.event({"choices": [{"text": " the"}]})
        used = {"completion_tokens": body["max_tokens"], "prompt_tokens": len(body["prompt"]), "prompt_tokens_details": {"cached_tokens": 5}}
        self.event({"choices": [], "usage": used})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, event):
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.bodies, made.running, made.most, made.fails, made.lock = [], 0, 0, None, threading.Lock()
    made.url = f"http://127.0.0.1:{made.server_port}/v1"
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def rows_of(tmp_path, url, more={}, repetitions=1):
    settings = {**EIGHT, "serve.batching": ["16"], "measure.repetitions": repetitions, **more}
    rows = cells_of(CONFIG, tmp_path / "out", "--server", url, settings, env=ENV_HERE)
    return {row["batching"]: row for row in rows}


def test_a_server_gets_the_requests_and_its_times_are_seen_from_outside(server, tmp_path):
    rows = rows_of(tmp_path, server.url, {"serve.users": [2]})
    own = rows["16"]
    assert list(rows) == ["16", "open", "2 users"] and own["variant"].startswith("paged")
    for name in ("open", "2 users"):
        row = rows[name]
        assert (row["status"], row["variant"], row["peer"], row["peer_settings"]) == ("ok", server.url, "server", "model tiny")
        assert (row["requests"], row["refused"], row["request_errors"]) == (str(REQUESTS), "0", "0")
        assert [row[column] for column in ("prompt_p50_tokens", "output_p50_tokens")] == [own[c] for c in ("prompt_p50_tokens", "output_p50_tokens")]
        assert float(row["requests_per_s"]) * float(row["served_s"]) == pytest.approx(REQUESTS)
        generated = sum(body["max_tokens"] for body in server.bodies[:REQUESTS])
        assert float(row["served_tokens_per_s"]) * float(row["served_s"]) == pytest.approx(generated)
        assert float(row["ttft_p50_s"]) >= FIRST_S and float(row["tpot_p50_ms"]) > 0
        assert float(row["hit_rate"]) == pytest.approx(5 * REQUESTS / sum(len(body["prompt"]) for body in server.bodies[:REQUESTS]))
        assert row["held_peak_bytes"] == row["codec"] == ""
    opened, closed = server.bodies[:REQUESTS], server.bodies[REQUESTS:]
    key = lambda body: (body["prompt"], body["max_tokens"])  # noqa: E731
    assert sorted(map(key, opened)) == sorted(map(key, closed))
    assert all(20 <= len(body["prompt"]) <= 40 and 4 <= body["max_tokens"] <= 8 and body["temperature"] == 0 for body in opened)


def test_users_wait_for_their_answers(server, tmp_path):
    # In the open loop each request comes long after the one before is answered.
    rows_of(tmp_path, server.url, {"serve.users": [2], "serve.arrivals": ["poisson(1)"], "serve.requests": 3})
    assert server.most == 2


def test_arrivals_wait_for_nobody(server, tmp_path):
    rows_of(tmp_path, server.url, {"serve.arrivals": ["poisson(2000)"]})
    assert server.most > 2 and len(server.bodies) == REQUESTS


def test_each_repetition_has_other_tokens_of_the_same_lengths(server, tmp_path):
    rows = rows_of(tmp_path, server.url, repetitions=5)
    assert rows["open"]["served_times"] == "5" and float(rows["open"]["ttft_p99_s"]) >= FIRST_S
    lengths = [sorted((len(b["prompt"]), b["max_tokens"]) for b in server.bodies[i : i + REQUESTS]) for i in range(0, 5 * REQUESTS, REQUESTS)]
    assert all(of == lengths[0] for of in lengths)
    assert len({tuple(body["prompt"]) for body in server.bodies}) == 5 * REQUESTS


def test_an_error_ends_one_request(server, tmp_path):
    server.fails = 3
    row = rows_of(tmp_path, server.url)["open"]
    assert (row["status"], row["request_errors"], row["reason"]) == ("ok", "1", 'HTTP 500: {"error": "out of\\nslots"}')
    assert float(row["requests_per_s"]) * float(row["served_s"]) == pytest.approx(REQUESTS - 1)


def test_a_conversation_keeps_its_history(server, tmp_path):
    trace = tmp_path / "chats.jsonl"
    turn = {"type": "text", "output_length": 6, "hash_ids": []}
    turns = [{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.0, "input_length": 20}, {"chat_id": 2, "parent_chat_id": 1, "timestamp": 0.01, "input_length": 60}]
    trace.write_text("".join(json.dumps({**turn, **own}) + "\n" for own in turns))
    rows_of(tmp_path, server.url, {"serve.trace": str(trace), "serve.arrivals": ["trace"]})
    first, second = server.bodies
    answer = Tokenizer.from_file(str(MODEL / "tokenizer.json")).encode(" the" * 6, add_special_tokens=False).ids
    history = first["prompt"] + answer
    assert len(first["prompt"]) == 20 and len(second["prompt"]) == 60 and second["prompt"][: len(history)] == history


def test_where_no_server_answers_the_cell_says_so(tmp_path):
    row = rows_of(tmp_path, "http://127.0.0.1:9/v1")["open"]
    assert row["status"] == "unsupported" and row["reason"].startswith("no server answers at http://127.0.0.1:9/v1/models: ")


@pytest.mark.skipif(not PROGRAM.exists(), reason="peer llama.cpp is not installed here")
def test_llama_server_answers(tmp_path):
    model = HOME / ".models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not model.exists():
        pytest.skip("no models here: ./kvlab models fetch smollm2-135m")
    port = "18462"
    words = [PROGRAM, "-m", model, "--port", port, "-np", "2", "-c", "2048", "-t", "1", "--no-webui"]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        settings = {"workload.model": str(model), "serve.requests": 3, "serve.users": [2], "serve.sharing": ["on"], "serve.variants": ["paged(block=16)/f16"]}
        while not answers(f"http://127.0.0.1:{port}/health"):
            assert running.poll() is None
            time.sleep(0.5)
        rows = rows_of(tmp_path, f"http://127.0.0.1:{port}/v1", settings)
        for name in ("open", "2 users"):
            assert (rows[name]["status"], rows[name]["request_errors"]) == ("ok", "0"), rows[name]["reason"]
            assert rows[name]["hit_rate"] and float(rows[name]["tpot_p50_ms"]) > 0
    finally:
        running.kill()
        running.wait()


def answers(url):
    import httpx

    try:
        return httpx.get(url).status_code == 200
    except httpx.HTTPError:
        return False
