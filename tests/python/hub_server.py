"""A web server with the hub's URL layout, on a port of 127.0.0.1, that misbehaves as it is told.

Each file has a script of behaviours, one per request; the last one stays. A behaviour is a function of the
connection, the request and the right content. Every request is recorded.
"""
import dataclasses
import re
import socket
import ssl
import struct
import threading
import time


@dataclasses.dataclass
class Request:
    path: str
    headers: dict
    port: int

    @property
    def first(self):
        """Where the asked range begins; None: the whole file."""
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        return int(match.group(1)) if match else None


class HubServer:
    """files: name -> content. scripts: name -> list of behaviours (default: [serve]). tls: an SSLContext, for https."""

    def __init__(self, files=None, prefix="/Qwen/Test/resolve/" + "a" * 40 + "/", tls=None):
        self.tls = tls
        self.files = dict(files or {})
        self.scripts = {}
        self.prefix = prefix
        self.requests = []
        self.lock = threading.Lock()
        self.arrived = threading.Condition(self.lock)
        self.closing = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closing.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def asked(self, name):
        with self.lock:
            return [r for r in self.requests if r.path.rsplit("/", 1)[1] == name]

    def wait_for(self, name, count=1, seconds=20):
        with self.arrived:
            met = lambda: sum(r.path.endswith("/" + name) for r in self.requests) >= count
            assert self.arrived.wait_for(met, seconds), f"no request for {name}"

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                if self.tls:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                while self._answer(connection):
                    pass
            except (ConnectionError, TimeoutError, ssl.SSLError):
                pass  # the client had enough

    def _answer(self, connection):
        head = b""
        while b"\r\n\r\n" not in head:
            more = connection.recv(65536)
            if not more:
                return False
            head += more
        lines = head.decode("latin-1").split("\r\n")
        path = lines[0].split(" ")[1]
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:] if ":" in line)}
        request = Request(path, headers, self.port)
        name = path.rsplit("/", 1)[1]
        with self.arrived:
            seen = sum(r.path.endswith("/" + name) for r in self.requests)
            self.requests.append(request)
            self.arrived.notify_all()
        script = self.scripts.get(name, [serve])
        behaviour = script[min(seen, len(script) - 1)]
        content = self.files.get(name)
        if content is None or not path.startswith(self.prefix):
            behaviour = status(404)
        # True: the connection stays open for the next request.
        return behaviour(self, connection, request, content) is True


def send_head(connection, code, headers):
    lines = [f"HTTP/1.1 {code} X"] + [f"{k}: {v}" for k, v in headers.items()]
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))


def head_for(request, content):
    """Status, headers and the bytes to send, as a decent server has them."""
    first = request.first
    if first is None:
        return 200, {"Content-Length": len(content)}, content
    if first >= len(content):
        return 416, {"Content-Range": f"bytes */{len(content)}", "Content-Length": 0}, b""
    body = content[first:]
    return 206, {"Content-Length": len(body),
                 "Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"}, body


def serve(_, connection, request, content):
    code, headers, body = head_for(request, content)
    send_head(connection, code, headers)
    connection.sendall(body)
    return True


def status(code, **headers):
    def behave(_, connection, request, content):
        text = b"<html>no</html>"
        send_head(connection, code, {"Content-Length": len(text)} | {k.replace("_", "-"): v for k, v in headers.items()})
        connection.sendall(text)
        return True
    return behave


def after_hints(behaviour, **headers):
    """An interim answer first, whose headers mean nothing."""
    def behave(server, connection, request, content):
        send_head(connection, 103, {k.replace("_", "-"): v for k, v in headers.items()})
        return behaviour(server, connection, request, content)
    return behave


def cut(n, reset=False):
    """The promised length, but only n bytes of it; then the connection ends, or is reset."""
    def behave(_, connection, request, content):
        code, headers, body = head_for(request, content)
        send_head(connection, code, headers)
        connection.sendall(body[:n])
        if reset:
            time.sleep(0.05)  # let what was sent arrive: a reset throws away what waits
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return behave


def silent(_, connection, request, content):
    """Closes without an answer."""


def lie(delta):
    """Content-Length is off by delta (the Content-Range too); the body is right."""
    def behave(_, connection, request, content):
        code, headers, body = head_for(request, content)
        headers["Content-Length"] += delta
        if "Content-Range" in headers:
            total = len(content) + delta
            headers["Content-Range"] = f"bytes {request.first}-{total - 1}/{total}"
        send_head(connection, code, headers)
        connection.sendall(body)
    return behave


def chunked(extra=b"", keep=None, finish=True):
    """No length: chunks of 1000 bytes of the first `keep` bytes of the body, then `extra`."""
    def behave(_, connection, request, content):
        code, headers, body = head_for(request, content)
        del headers["Content-Length"]
        send_head(connection, code, headers | {"Transfer-Encoding": "chunked"})
        body = body[:keep] + extra
        for at in range(0, len(body), 1000):
            piece = body[at:at + 1000]
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        if finish:
            connection.sendall(b"0\r\n\r\n")
    return behave


def until_close(n=None):
    """No length at all: the body ends with the connection."""
    def behave(_, connection, request, content):
        code, headers, body = head_for(request, content)
        del headers["Content-Length"]
        send_head(connection, code, headers | {"Connection": "close"})
        connection.sendall(body[:n])
    return behave


def corrupt(at):
    """One wrong byte at offset `at` of the file, if it is within what is asked."""
    def behave(server, connection, request, content):
        changed = bytearray(content)
        changed[at] ^= 0x20
        return serve(server, connection, request, bytes(changed))
    return behave


def other(content):
    """Another file altogether."""
    return lambda server, connection, request, _: serve(server, connection, request, content)


def ignore_range(n=None):
    """Answers every request with everything, or with the first n bytes and a cut."""
    def behave(_, connection, request, content):
        send_head(connection, 200, {"Content-Length": len(content)})
        connection.sendall(content[:n])
        return n is None
    return behave


def wrong_range(value, length=True):
    """206 with another Content-Range: a format string over first, last and total; None: without one."""
    def behave(_, connection, request, content):
        if request.first is None:
            send_head(connection, 200, {"Content-Length": len(content)})
            connection.sendall(content)
            return True
        body = content[request.first:]
        headers = {"Content-Length": len(body)}
        if value is not None:
            headers["Content-Range"] = value.format(first=request.first, last=len(content) - 1, total=len(content))
        if not length:
            del headers["Content-Length"]
            headers["Transfer-Encoding"] = "chunked"
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        send_head(connection, 206, headers)
        connection.sendall(body)
        return True
    return behave


def range_unasked(_, connection, request, content):
    """206 whether or not a range was asked for."""
    first = request.first or 0
    send_head(connection, 206, {"Content-Length": len(content) - first,
                                "Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"})
    connection.sendall(content[first:])
    return True


def stall(n):
    """n bytes, then nothing while the client listens."""
    def behave(server, connection, request, content):
        code, headers, body = head_for(request, content)
        send_head(connection, code, headers)
        connection.sendall(body[:n])
        wait_until_gone(server, connection)
    return behave


def stall_head(server, connection, request, content):
    wait_until_gone(server, connection)


def drip(server, connection, request, content):
    """A byte now and then: alive, but it would take for ever."""
    code, headers, body = head_for(request, content)
    send_head(connection, code, headers)
    for i in range(len(body)):
        if server.closing.wait(0.02):
            return
        connection.sendall(body[i:i + 1])


def wait_until_gone(server, connection):
    connection.settimeout(0.05)
    while not server.closing.is_set():
        try:
            if not connection.recv(1):
                return
        except TimeoutError:
            pass


def redirect(location, code=302):
    """location: a string, or a function of the request."""
    def behave(_, connection, request, content):
        to = location(request) if callable(location) else location
        headers = {"Content-Length": 5}
        if to is not None:
            headers["Location"] = to
        send_head(connection, code, headers)
        connection.sendall(b"moved")
        return True
    return behave
