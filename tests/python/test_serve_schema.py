"""Requests made from the server's own OpenAPI document, valid and not: no 500, no crash, nothing undocumented, and a
good request beside them is answered all the time."""

import pathlib
import subprocess
import sys
import threading

from serving import Server

SECONDS = 45
GOOD = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
# Rules between fields (stream_options wants stream) stand in descriptions, so that not all that the schemas allow is
# accepted; and TRACE and its like are 405 by our own choice of methods.
EXCLUDED = "positive_data_acceptance,unsupported_method"


def test_nothing_made_from_the_document_breaks_the_server(tmp_path):
    with Server("--context", "512", "--generation-timeout", "20", "--max-queue", "4096") as server:
        answers = []
        stop = threading.Event()

        def ask():
            while not stop.wait(0.1):
                answers.append(server.post("/v1/completions", GOOD))

        beside = threading.Thread(target=ask)
        beside.start()
        done = subprocess.run(
            [
                pathlib.Path(sys.executable).parent / "schemathesis",
                *("run", f"http://127.0.0.1:{server.port}/openapi.json", "--max-time", str(SECONDS)),
                *("--exclude-checks", EXCLUDED, "--no-color", "--workers", "2", "--seed", "1", "--continue-on-failure"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS * 6,
        )
        stop.set()
        beside.join()
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        texts = {answer.json["choices"][0]["text"] for answer in answers if answer.status == 200}
        assert len(answers) > 20 and len(texts) == 1 and all(answer.status == 200 for answer in answers)
        metrics = server.wait_until(lambda m: m["kipp_requests_running"] == m["kipp_requests_waiting"] == 0)
        assert metrics["kipp_kv_blocks_reserved"] == 0
        assert not any(name.startswith("kipp_http_requests_total") and 'code="500"' in name for name in metrics)
        assert server.stop() == 0
