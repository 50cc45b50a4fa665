"""A server with the page of `kipp serve` and answers that a test has written down.

The page's files and its content security policy are those of src/server. What a model says is a function of the
request's body that yields steps: ("text", "Hello"), ("think", ...), ("progress", processed, total), ("wait", event),
("error", message), ("drop",), ("finish", reason). Every request to generate is recorded.
"""
import http.server
import json
import pathlib
import re
import threading
import time

SERVER = pathlib.Path(__file__).resolve().parents[2] / "src" / "server"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".json": "application/json"}
SEED = 9007199254740993  # no number of JavaScript's


def content_security_policy():
    source = (SERVER / "web_assets.cc").read_text()
    literals = re.search(r"kContentSecurityPolicy =((?:\s*\"[^\n]*\")+);", source)[1]
    return "".join(re.findall(r'"([^\n]*)"', literals))


def say(*pieces):
    return lambda body: [("text", piece) for piece in pieces]


class FakeKipp:
    def __init__(self, port=0):
        self.script = say("Once", " upon", " a", " time")
        self.chat = True
        self.model = "kipp-fake"
        self.key = None
        self.loading = False
        self.refusal = None  # (status, message, headers), for the next request to generate
        self.requests = []
        self.gone = threading.Event()  # a client left in the middle of an answer
        self.blocks = {"free": 600, "used": 250, "shared": 50, "cached": 100}
        policy = content_security_policy()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                try:
                    outer.get(self)
                except OSError:
                    pass  # the page went before its answer came

            def do_POST(self):
                outer.post(self)

            def end_headers(self):
                self.send_header("Content-Security-Policy", policy)
                self.send_header("X-Content-Type-Options", "nosniff")
                super().end_headers()

            def log_message(self, *_):
                pass

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.httpd.daemon_threads = True
        self.port = self.httpd.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()

    def reply(self, to, status, body, kind="application/json", headers=()):
        data = body.encode() if isinstance(body, str) else body
        to.send_response(status)
        for name, value in headers:
            to.send_header(name, value)
        to.send_header("Content-Type", kind)
        to.send_header("Content-Length", str(len(data)))
        to.end_headers()
        to.wfile.write(data)

    def refuse(self, to, status, message, headers=()):
        self.reply(to, status, json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}}),
                   headers=headers)

    def allowed(self, to):
        if self.key is None or to.headers.get("Authorization") == f"Bearer {self.key}":
            return True
        self.refuse(to, 401, "Authorization: expected \"Bearer\" and an API key, found none")
        return False

    def get(self, to):
        file = SERVER / "web" / ("index.html" if to.path == "/" else to.path.lstrip("/"))
        if to.path == "/metrics" and self.allowed(to):
            lines = [f'kipp_kv_blocks{{state="{state}"}} {n}' for state, n in self.blocks.items()]
            lines += ["# HELP kipp_requests_running x", "kipp_requests_running 3", "kipp_requests_waiting 1"]
            self.reply(to, 200, "\n".join(lines) + "\n", "text/plain; version=0.0.4")
        elif to.path == "/v1/models" and self.allowed(to):
            if self.loading:
                return self.refuse(to, 503, "model: expected it loaded, found it still loading")
            entry = {"id": self.model, "object": "model", "created": 1, "owned_by": "kipp",
                     "kipp": {"chat": self.chat, "sampling": {"temperature": 0.6, "top_k": 20}}}
            self.reply(to, 200, json.dumps({"object": "list", "data": [entry]}))
        elif file.is_file():
            self.reply(to, 200, file.read_bytes(), TYPES[file.suffix])
        elif to.path not in ("/metrics", "/v1/models"):
            self.refuse(to, 404, "path: expected one that the server knows")

    def post(self, to):
        body = json.loads(to.rfile.read(int(to.headers["Content-Length"])))
        if not self.allowed(to):
            return
        self.requests.append(body)
        if self.refusal:
            status, message, headers = self.refusal
            self.refusal = None
            return self.refuse(to, status, message, headers)
        to.send_response(200)
        to.send_header("Content-Type", "text/event-stream")
        to.end_headers()
        try:
            self.stream(to, body)
        except OSError:
            self.gone.set()

    def stream(self, to, body):
        chat = to.path == "/v1/chat/completions"
        head = {"id": "x-1", "object": "chat.completion.chunk" if chat else "text_completion", "created": 1,
                "model": self.model}
        n = 0

        def send(**more):
            usage = {"prompt_tokens": 12, "completion_tokens": n, "total_tokens": 12 + n,
                     "prompt_tokens_details": {"cached_tokens": 8}}
            to.wfile.write(f"data: {json.dumps({**head, 'usage': usage, **more})}\n\n".encode())
            to.wfile.flush()

        def choose(delta, text, reason=None, **more):
            choice = {"index": 0, "finish_reason": reason, **({"delta": delta} if chat else {"text": text})}
            send(choices=[choice], **more)

        if chat:
            choose({"role": "assistant", "content": ""}, "")
        reason = "stop"
        for step, *values in self.script(body):
            if step == "text":
                n += 1
                choose({"content": values[0]}, values[0])
            elif step == "think":
                n += 1
                choose({"reasoning_content": values[0]}, "")
            elif step == "progress":
                send(choices=[], prompt_progress={"processed": values[0], "total": values[1], "cache": 8, "time_ms": 1})
            elif step == "wait":
                # Comments, as the server sends them while nothing else comes; they also notice who has gone.
                while not values[0].wait(0.02):
                    to.wfile.write(b": keep-alive\n\n")
                    to.wfile.flush()
            elif step == "pause":
                time.sleep(values[0])
            elif step == "error":
                to.wfile.write(f"data: {json.dumps({'error': {'message': values[0]}})}\n\ndata: [DONE]\n\n".encode())
                return
            elif step == "drop":
                return
            elif step == "finish":
                reason = values[0]
        timings = {"predicted_per_second": 123.4}
        choose({}, "", reason, timings=timings, kipp={"seed": SEED})
        send(choices=[])
        to.wfile.write(b"data: [DONE]\n\n")
