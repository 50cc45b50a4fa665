"""`kipp pull` against a hub that cuts, lies, corrupts, refuses, redirects and stalls.

Whatever the server does, a file under its final name is the pinned one; the number of requests is bounded; a
resume asks for the byte where the download stopped.
"""
import hashlib
import json
import os
import pathlib
import random
import signal
import ssl
import subprocess
import time

import pytest
import zstandard

from hub_server import (HubServer, after_hints, chunked, corrupt, cut, drip, ignore_range, lie, other, range_unasked, redirect, serve,
                        silent, stall, stall_head, status, until_close, wrong_range)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build"))
PROBE = BUILD / "tests" / "pull_probe"
KIPP = BUILD / "kipp"
NAME = "model.safetensors"
CONTENT = random.Random(7).randbytes(300_000)
ATTEMPTS = 4
REFUSED, IO, NETWORK, INTERRUPTED = 1, 2, 3, 5  # ErrorCode
ENVIRONMENT = {k: v for k, v in os.environ.items() if k.lower() not in ("http_proxy", "https_proxy", "all_proxy")}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def hub():
    with HubServer({NAME: CONTENT}) as server:
        yield server


class Pull:
    """A probe process over a directory."""

    def __init__(self, hub, directory, files=None, **options):
        self.hub, self.directory = hub, directory
        self.files = {NAME: CONTENT} if files is None else files
        self.pins = [{"name": n, "bytes": len(c), "sha256": sha256(c)} for n, c in self.files.items()]
        self.endpoint = hub.url
        self.token = ""
        self.ca_file = ""
        self.options = {"first_wait": 1, "longest_wait": 20, "longest_retry_after": 5000, "stall_timeout": 10000,
                        "attempts": ATTEMPTS} | options

    def plan(self):
        return json.dumps({"endpoint": self.endpoint, "token": self.token, "ca_file": self.ca_file, "repository": "Qwen/Test", "revision": "a" * 40,
                           "directory": str(self.directory), "files": self.pins, "options": self.options})

    def start(self):
        process = subprocess.Popen([PROBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        process.stdin.write(self.plan())
        process.stdin.close()
        return process

    def finish(self, process):
        result = json.loads(process.stdout.read())
        process.wait(30)
        self.check()
        return result

    def run(self):
        return self.finish(self.start())

    def check(self):
        """Final names hold the right bytes or do not exist."""
        for name, content in self.files.items():
            path = self.directory / name
            if path.is_file():
                assert path.read_bytes() == content

    def partial(self, name=NAME):
        path = self.directory / (name + ".partial")
        return path.read_bytes() if path.exists() else None

    def succeeds(self):
        result = self.run()
        assert result["ok"], result
        for name, content in self.files.items():
            assert (self.directory / name).read_bytes() == content
            assert self.partial(name) is None
        return result

    def fails(self, code, *parts):
        result = self.run()
        assert not result["ok"] and result["code"] == code, result
        for part in parts:
            assert part in result["error"]
        return result


def firsts(hub, name=NAME):
    return [r.first for r in hub.asked(name)]


# behaviours -> the offsets that must have been asked for
HEALED = {
    "nothing wrong": ([serve], [None]),
    "cut once": ([cut(100_000), serve], [None, 100_000]),
    "cut twice": ([cut(100_000), cut(50_000), serve], [None, 100_000, 150_000]),
    "cut before the body": ([cut(0), serve], [None, None]),
    "cut one byte short": ([cut(299_999), serve], [None, 299_999]),
    "reset": ([cut(100_000, reset=True), serve], [None, 100_000]),
    "no answer": ([silent, silent, serve], [None, None, None]),
    "length too long once": ([lie(5), serve], [None, None]),
    "length too short once": ([lie(-5), serve], [None, None]),
    "length too long on resume": ([cut(9), lie(5), serve], [None, 9, None]),
    "length too short on resume": ([cut(9), lie(-5), serve], [None, 9, None]),
    "chunked": ([chunked()], [None]),
    "chunked, cut": ([chunked(keep=100_000, finish=False), serve], [None, 100_000]),
    "chunked, too short": ([chunked(keep=100_000), serve], [None, 100_000]),
    "chunked, too long once": ([chunked(extra=b"x"), serve], [None, None]),
    "ends with the connection": ([until_close()], [None]),
    "ends with the connection, too early": ([until_close(77), serve], [None, 77]),
    "corrupt once": ([corrupt(1234), serve], [None, None]),
    "corrupt before a cut": ([cut(100_000), corrupt(200_000), serve], [None, 100_000, None]),
    "another file once": ([other(b"<html>log in</html>"), serve], [None, None]),
    "503 twice": ([status(503), status(503), serve], [None] * 3),
    "500, 502, 504": ([status(500), status(502), status(504), serve], [None] * 4),
    "408": ([status(408), serve], [None] * 2),
    "503 between": ([cut(1000), status(503), serve], [None, 1000, 1000]),
    "ignores ranges": ([cut(100_000), ignore_range()], [None, 100_000]),
    "ignores ranges and cuts": ([cut(100_000), ignore_range(50_000), serve], [None, 100_000, 50_000]),
    "416 on resume": ([cut(100_000), status(416), serve], [None, 100_000, None]),
    "range from elsewhere": ([cut(9), wrong_range("bytes 0-{last}/{total}"), serve], [None, 9, None]),
    "range from elsewhere, no length": ([cut(9), wrong_range("bytes 0-{last}/{total}", False), serve], [None, 9, None]),
    "range of right length from elsewhere": ([cut(9), wrong_range("bytes 8-299998/*"), serve], [None, 9, None]),
    "ranges never right, and a cut": ([cut(9), wrong_range(None), cut(9), serve], [None, 9, None, None]),
    "range of another file": ([cut(9), wrong_range("bytes {first}-{last}/7777777"), serve], [None, 9, None]),
    "range ends early": ([cut(9), wrong_range("bytes {first}-100/{total}"), serve], [None, 9, None]),
    "no Content-Range": ([cut(9), wrong_range(None), serve], [None, 9, None]),
    "malformed Content-Range": ([cut(9), wrong_range("bytes {first}-/{total}"), serve], [None, 9, None]),
    "backward Content-Range": ([cut(9), wrong_range("bytes 9-8/{total}"), serve], [None, 9, None]),
    "overflowing Content-Range": ([cut(9), wrong_range("bytes 18446744073709551625-{last}/{total}"), serve], [None, 9, None]),
    "unknown total": ([cut(9), wrong_range("bytes {first}-{last}/*")], [None, 9]),
    "range unasked": ([range_unasked, serve], [None, None]),
}


@pytest.mark.parametrize("case", HEALED)
def test_heals(hub, tmp_path, case):
    hub.scripts[NAME], offsets = HEALED[case]
    result = Pull(hub, tmp_path).succeeds()
    assert firsts(hub) == offsets
    assert result["files"][NAME] == {"bytes": len(CONTENT), "sha256": sha256(CONTENT), "verified": True, "present": False}
    assert len(result["notes"]) == len(offsets) - 1, result["notes"]


# behaviours that stay -> error code, part of the sentence, most requests
HOPELESS = {
    "404": ([status(404)], NETWORK, "not found (status 404)", 1),
    "401": ([status(401)], NETWORK, "HF_TOKEN", 1),
    "403": ([status(403)], NETWORK, "ask for access", 1),
    "410": ([status(410)], NETWORK, "status 410", 1),
    "400": ([status(400)], NETWORK, "expected status 200 or 206", 1),
    "204": ([status(204)], NETWORK, "found 204", 1),
    "503": ([status(503)], NETWORK, "gave up after 4 tries, the last one because status 503", ATTEMPTS),
    "cut at the start": ([cut(0)], NETWORK, "gave up", ATTEMPTS),
    "cut at the same byte": ([ignore_range(100_000)], NETWORK, "gave up", ATTEMPTS),
    "no answer": ([silent], NETWORK, "gave up", ATTEMPTS),
    "corrupt": ([corrupt(1234)], REFUSED, "SHA-256: expected " + sha256(CONTENT), 2),
    "corrupt at the last byte": ([corrupt(299_999)], REFUSED, "SHA-256: expected", 2),
    "corrupt after resume": ([cut(5), corrupt(99), cut(5), corrupt(99)], REFUSED, "SHA-256: expected", 4),
    "too long": ([lie(1)], REFUSED, "size: expected 300000 bytes, found 300001 announced", 2),
    "too short": ([lie(-1)], REFUSED, "size: expected 300000 bytes, found 299999 announced", 2),
    "too long, unannounced": ([chunked(extra=b"x")], REFUSED, "size: expected 300000 bytes, found more", 2),
    "too short, unannounced": ([chunked(keep=1000)], NETWORK, "gave up", ATTEMPTS + 1),
    "endless": ([chunked(extra=b"x" * 5_000_000)], REFUSED, "found more", 2),
    "another file": ([other(b"<html>log in</html>")], REFUSED, "size: expected 300000", 2),
    "ranges unasked": ([range_unasked], NETWORK, "gave up", ATTEMPTS),
    "416 always": ([status(416)], NETWORK, "status 416", ATTEMPTS),
    "redirect without a place": ([redirect(None)], NETWORK, "without a place", 1),
    "redirect to a file": ([redirect("file:///etc/passwd")], NETWORK, "no web address", 1),
    "redirect to ftp": ([redirect("ftp://127.0.0.1/x")], NETWORK, "no web address", 1),
}


@pytest.mark.parametrize("case", HOPELESS)
def test_gives_up(hub, tmp_path, case):
    hub.scripts[NAME], code, sentence, most = HOPELESS[case]
    pull = Pull(hub, tmp_path)
    pull.fails(code, NAME, sentence)
    assert not (tmp_path / NAME).exists()
    assert 1 <= len(hub.asked(NAME)) <= most
    if code == REFUSED:
        assert pull.partial() is None


def test_gives_up_and_a_later_call_resumes(hub, tmp_path):
    hub.scripts[NAME] = [cut(100_000)] + [status(503)] * (ATTEMPTS - 1) + [serve]
    pull = Pull(hub, tmp_path)
    pull.fails(NETWORK, "the same command resumes at byte 100000")
    assert pull.partial() == CONTENT[:100_000]
    pull.succeeds()
    assert firsts(hub)[-1] == 100_000


def test_progress_renews_patience(hub, tmp_path):
    """A line that drops every 60 kB still delivers, however few tries are allowed without progress."""
    hub.scripts[NAME] = [cut(60_000)]
    Pull(hub, tmp_path, attempts=2, progress_bytes=50_000).succeeds()
    assert firsts(hub) == [None, 60_000, 120_000, 180_000, 240_000]


def test_honours_retry_after(hub, tmp_path):
    hub.scripts[NAME] = [status(429, Retry_After="1"), serve]
    begin = time.monotonic()
    Pull(hub, tmp_path).succeeds()
    assert 1.0 <= time.monotonic() - begin < 4


def test_bounds_retry_after(hub, tmp_path):
    hub.scripts[NAME] = [status(429, Retry_After="86400"), status(503, Retry_After="99999999999999999999"),
                         status(503, Retry_After="Wed, 21 Oct 2037 07:28:00 GMT"), serve]
    begin = time.monotonic()
    Pull(hub, tmp_path, longest_retry_after=100).succeeds()
    assert time.monotonic() - begin < 3


def test_interim_answers_mean_nothing(hub, tmp_path):
    hub.scripts[NAME] = [after_hints(status(503), Retry_After="3600"), after_hints(serve, Content_Range="bytes 5-6/7")]
    begin = time.monotonic()
    Pull(hub, tmp_path).succeeds()
    assert time.monotonic() - begin < 4 and firsts(hub) == [None, None]


@pytest.mark.parametrize("behaviour", [stall(0), stall(5000), stall_head, drip], ids=["body", "middle", "head", "drip"])
def test_leaves_a_stalled_server(hub, tmp_path, behaviour):
    hub.scripts[NAME] = [behaviour, serve]
    result = Pull(hub, tmp_path, stall_timeout=400).succeeds()
    assert len(hub.asked(NAME)) == 2
    assert "bytes came in 400 ms" in result["notes"][0]


def test_nobody_listens(hub, tmp_path):
    pull = Pull(hub, tmp_path)
    pull.endpoint = "http://127.0.0.1:1"
    result = pull.fails(NETWORK, "gave up after 4 tries")
    assert len(result["notes"]) == ATTEMPTS - 1


@pytest.mark.parametrize("endpoint", ["", "ftp://x", "huggingface.co", "file:///etc"])
def test_refuses_other_endpoints(hub, tmp_path, endpoint):
    pull = Pull(hub, tmp_path)
    pull.endpoint = endpoint
    pull.fails(0, "HF_ENDPOINT")


def test_refuses_a_token_that_is_a_header(hub, tmp_path):
    pull = Pull(hub, tmp_path)
    pull.token = "abc\r\nX-Evil: 1"
    pull.fails(0, "HF_TOKEN")
    assert hub.asked(NAME) == []


@pytest.mark.parametrize("name", ["../up", "a/b", "..", "", ".verified"])
def test_refuses_names_that_are_paths(hub, tmp_path, name):
    Pull(hub, tmp_path, {name: b""}).fails(0, "file name")


class TestRedirects:
    def test_same_origin_keeps_the_token(self, hub, tmp_path):
        moved = hub.prefix + "blobs/" + NAME
        hub.scripts[NAME] = [redirect(moved, 307), serve]
        pull = Pull(hub, tmp_path)
        pull.token = "secret"
        pull.succeeds()
        assert [r.headers.get("authorization") for r in hub.asked(NAME)] == ["Bearer secret"] * 2

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_other_origin_never_sees_it(self, hub, tmp_path, host):
        with HubServer({NAME: CONTENT}) as cdn:
            target = lambda r: f"http://{host}:{cdn.port}{cdn.prefix}{NAME}"
            hub.scripts[NAME] = [redirect(target)]
            cdn.scripts[NAME] = [cut(100_000), serve]
            pull = Pull(hub, tmp_path)
            pull.token = "secret"
            pull.succeeds()
            assert [r.headers["authorization"] for r in hub.asked(NAME)] == ["Bearer secret"] * 2
            assert all("authorization" not in r.headers for r in cdn.asked(NAME))
            assert "secret" not in str(cdn.requests)
            # Signed addresses expire, so a resume begins at the hub again.
            assert firsts(hub) == firsts(cdn) == [None, 100_000]

    def test_the_way_back_gets_it_again(self, hub, tmp_path):
        with HubServer({NAME: CONTENT}) as cdn:
            hub.scripts[NAME] = [redirect(f"{cdn.url}{cdn.prefix}{NAME}"), serve]
            cdn.scripts[NAME] = [redirect(f"{hub.url}{hub.prefix}final/{NAME}")]
            pull = Pull(hub, tmp_path)
            pull.token = "secret"
            pull.succeeds()
            assert [r.headers.get("authorization") for r in hub.asked(NAME)] == ["Bearer secret"] * 2
            assert "authorization" not in cdn.asked(NAME)[0].headers

    def test_loop_ends(self, hub, tmp_path):
        hub.scripts[NAME] = [redirect(lambda r: r.path)]
        Pull(hub, tmp_path).fails(NETWORK, "more than 10 redirects")
        assert len(hub.asked(NAME)) == 11

    def test_many_hops_are_fine(self, hub, tmp_path):
        hub.scripts[NAME] = [redirect(lambda r: r.path)] * 10 + [serve]
        Pull(hub, tmp_path).succeeds()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that nobody else trusts, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    cert, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def tls_hub(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with HubServer({NAME: CONTENT}, tls=context) as server:
        yield server


class TestEncryption:
    def test_unknown_certificate_is_refused_at_once(self, tls_hub, tmp_path):
        pull = Pull(tls_hub, tmp_path)
        pull.token = "secret"
        assert pull.fails(NETWORK, "certificate")["notes"] == []
        assert tls_hub.requests == []

    def test_certificate_for_another_host_is_refused(self, tls_hub, certificate, tmp_path):
        pull = Pull(tls_hub, tmp_path)
        pull.ca_file = str(certificate[0])
        pull.endpoint = f"https://localhost:{tls_hub.port}"
        pull.fails(NETWORK, "localhost")
        assert tls_hub.requests == []

    def test_trusted_certificate(self, tls_hub, certificate, tmp_path):
        tls_hub.scripts[NAME] = [cut(100_000), serve]
        pull = Pull(tls_hub, tmp_path)
        pull.ca_file = str(certificate[0])
        pull.succeeds()
        assert firsts(tls_hub) == [None, 100_000]

    def test_never_from_https_to_http(self, hub, tls_hub, certificate, tmp_path):
        tls_hub.scripts[NAME] = [redirect(f"{hub.url}{hub.prefix}{NAME}")]
        pull = Pull(tls_hub, tmp_path)
        pull.ca_file = str(certificate[0])
        pull.fails(NETWORK, "redirected from https to http://")
        assert hub.requests == []

    def test_upgrade_to_https_is_another_origin(self, hub, tls_hub, certificate, tmp_path):
        hub.scripts[NAME] = [redirect(f"{tls_hub.url}{tls_hub.prefix}{NAME}")]
        pull = Pull(hub, tmp_path)
        pull.token, pull.ca_file = "secret", str(certificate[0])
        pull.succeeds()
        assert "authorization" not in tls_hub.requests[0].headers


class TestWhatIsThere:
    def test_whole_file_is_verified_once_and_not_asked_for(self, hub, tmp_path):
        (tmp_path / NAME).write_bytes(CONTENT)
        pull = Pull(hub, tmp_path)
        first = pull.succeeds()
        assert first["files"][NAME]["present"] and first["progress"]["checking"] == [300_000, 300_000]
        second = pull.succeeds()
        assert second["files"][NAME]["present"] and "checking" not in second["progress"]
        assert hub.asked(NAME) == []

    def test_downloaded_file_is_not_hashed_again(self, hub, tmp_path):
        pull = Pull(hub, tmp_path)
        pull.succeeds()
        assert "checking" not in pull.succeeds()["progress"]
        assert len(hub.asked(NAME)) == 1

    def test_changed_file_is_noticed(self, hub, tmp_path):
        pull = Pull(hub, tmp_path)
        pull.succeeds()
        path = tmp_path / NAME
        times = path.stat()
        with path.open("r+b") as file:  # same size, and the times set back as a thief would
            file.seek(1000)
            file.write(b"!")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        result = pull.succeeds()
        assert "SHA-256: expected" in result["notes"][0] and "moved to" in result["notes"][0]
        assert len(hub.asked(NAME)) == 2
        assert (tmp_path / (NAME + ".wrong")).stat().st_size == len(CONTENT)

    @pytest.mark.parametrize("stamp", ["", "{", "[]", "null", '{"model.safetensors": 3}',
                                       '{"model.safetensors": {"sha256": "", "bytes": -1}}'])
    def test_broken_stamps_are_ignored(self, hub, tmp_path, stamp):
        (tmp_path / NAME).write_bytes(CONTENT)
        (tmp_path / ".verified").write_text(stamp)
        assert "checking" in Pull(hub, tmp_path).succeeds()["progress"]

    @pytest.mark.parametrize("there", [CONTENT[:-1], CONTENT + b"x", b"", b"x" * len(CONTENT)],
                             ids=["short", "long", "empty", "other"])
    def test_wrong_file_is_replaced(self, hub, tmp_path, there):
        (tmp_path / NAME).write_bytes(there)
        Pull(hub, tmp_path).succeeds()
        assert (tmp_path / (NAME + ".wrong")).read_bytes() == there
        assert len(hub.asked(NAME)) == 1

    def test_wrong_file_is_not_kept_when_the_download_fails(self, hub, tmp_path):
        (tmp_path / NAME).write_bytes(b"x" * len(CONTENT))
        hub.scripts[NAME] = [corrupt(5)]
        Pull(hub, tmp_path).fails(REFUSED, "SHA-256")
        assert not (tmp_path / NAME).exists()

    def test_directory_in_the_way(self, hub, tmp_path):
        (tmp_path / NAME).mkdir()
        result = json.loads(Pull(hub, tmp_path).start().stdout.read())
        assert not result["ok"] and "expected a file or nothing" in result["error"]

    def test_partial_is_resumed(self, hub, tmp_path):
        (tmp_path / (NAME + ".partial")).write_bytes(CONTENT[:123_456])
        result = Pull(hub, tmp_path).succeeds()
        assert firsts(hub) == [123_456]
        assert result["progress"]["downloading"] == [len(CONTENT) - 123_456] * 2

    def test_whole_partial_needs_no_request(self, hub, tmp_path):
        (tmp_path / (NAME + ".partial")).write_bytes(CONTENT)
        Pull(hub, tmp_path).succeeds()
        assert hub.asked(NAME) == []

    @pytest.mark.parametrize("partial,offsets", [(b"x" * 1000, [1000, None]), (b"x" * len(CONTENT), [None]),
                                                 (CONTENT + b"x", [None])], ids=["begin", "whole", "long"])
    def test_corrupt_partial_is_dropped(self, hub, tmp_path, partial, offsets):
        (tmp_path / (NAME + ".partial")).write_bytes(partial)
        Pull(hub, tmp_path).succeeds()
        assert firsts(hub) == offsets

    def test_partial_that_is_a_link_is_not_followed(self, hub, tmp_path):
        victim = tmp_path / "victim"
        victim.write_bytes(b"precious")
        (tmp_path / (NAME + ".partial")).symlink_to(victim)
        Pull(hub, tmp_path).fails(IO, "cannot open")
        assert victim.read_bytes() == b"precious"


class TestUnpinned:
    """The registry knows no hash, or no size, of some files."""

    def test_accepted_and_said(self, hub, tmp_path):
        pull = Pull(hub, tmp_path)
        pull.pins[0] = {"name": NAME}
        result = pull.succeeds()
        assert result["files"][NAME]["verified"] is False
        assert result["files"][NAME]["sha256"] == sha256(CONTENT)
        assert pull.succeeds()["files"][NAME]["present"]

    def test_never_resumed(self, hub, tmp_path):
        hub.scripts[NAME] = [cut(100_000), serve]
        (tmp_path / (NAME + ".partial")).write_bytes(b"x" * 1000)
        pull = Pull(hub, tmp_path)
        pull.pins[0] = {"name": NAME}
        pull.succeeds()
        assert firsts(hub) == [None, None]

    def test_needs_an_end_that_can_be_told(self, hub, tmp_path):
        hub.scripts[NAME] = [until_close(1000)]
        pull = Pull(hub, tmp_path)
        pull.pins[0] = {"name": NAME}
        pull.fails(REFUSED, "expected the server to announce it")
        hub.scripts[NAME] = [chunked(keep=1000, finish=False)] * 9 + [chunked()]
        hub.requests.clear()
        pull.fails(NETWORK, "gave up")

    def test_chunked_is_enough(self, hub, tmp_path):
        hub.scripts[NAME] = [chunked()]
        pull = Pull(hub, tmp_path)
        pull.pins[0] = {"name": NAME}
        pull.succeeds()

    def test_size_alone_is_enforced(self, hub, tmp_path):
        hub.scripts[NAME] = [other(CONTENT[:-1])]
        pull = Pull(hub, tmp_path)
        del pull.pins[0]["sha256"]
        pull.fails(REFUSED, "size: expected 300000 bytes")


def test_many_files_small_ones_first(hub, tmp_path):
    files = {NAME: CONTENT, "config.json": b"{}", "vocab.json": b"v" * 5000}
    hub.files = files
    pull = Pull(hub, tmp_path, files)
    result = pull.succeeds()
    assert list(r.path.rsplit("/", 1)[1] for r in hub.requests) == ["config.json", "vocab.json", NAME]
    total = sum(map(len, files.values()))
    assert result["progress"]["downloading"] == [total, total]


def test_failed_file_keeps_the_finished_ones(hub, tmp_path):
    files = {"a.json": b"{}", "b.json": b"[1]"}
    hub.files = {"a.json": b"{}"}
    Pull(hub, tmp_path, files).fails(NETWORK, "b.json: not found")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", ".verified", "a.json"]


def test_room_is_checked_before_the_first_byte(hub, tmp_path):
    pull = Pull(hub, tmp_path)
    pull.pins[0]["bytes"] = 10**18
    pull.fails(IO, "expected 1000000000.00 GB of free disk space", "--dir")
    assert hub.asked(NAME) == [] and pull.partial() is None


def test_two_downloads_do_not_meet(hub, tmp_path):
    hub.scripts[NAME] = [stall(1000), serve]
    pull = Pull(hub, tmp_path, stall_timeout=2000)
    running = pull.start()
    hub.wait_for(NAME)
    pull.fails(IO, "found another download at work")
    assert pull.finish(running)["ok"]


def test_killed_and_resumed(hub, tmp_path):
    hub.scripts[NAME] = [stall(200_000), serve]
    pull = Pull(hub, tmp_path)
    process = pull.start()
    hub.wait_for(NAME)
    deadline = time.monotonic() + 20
    while len(pull.partial() or b"") < 200_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    assert not (tmp_path / NAME).exists()
    pull.succeeds()
    assert firsts(hub) == [None, 200_000]


@pytest.mark.parametrize("script", [[stall(100_000)], [cut(100_000), status(503, Retry_After="60")]],
                         ids=["transfer", "waiting"])
def test_interrupted_and_resumed(hub, tmp_path, script):
    hub.scripts[NAME] = script + [serve]
    pull = Pull(hub, tmp_path, longest_retry_after=60_000)
    process = pull.start()
    hub.wait_for(NAME, len(script))
    time.sleep(0.3)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    result = pull.finish(process)
    assert time.monotonic() - begin < 3
    assert result["code"] == INTERRUPTED and "resumes" in result["error"]
    assert pull.partial() == CONTENT[:100_000]
    pull.succeeds()
    assert firsts(hub)[-1] == 100_000


def test_random_misbehaviour_never_leaves_a_wrong_file(hub, tmp_path):
    """Forty seeded scripts of everything above: each run is right or says why it is not."""
    rng = random.Random(11)
    menu = [lambda: serve, lambda: cut(rng.randrange(300_000)), lambda: lie(rng.choice([-9, 9])), lambda: silent,
            lambda: corrupt(rng.randrange(300_000)), lambda: status(rng.choice([404, 416, 429, 500, 503])),
            lambda: ignore_range(), lambda: ignore_range(rng.randrange(300_000)), lambda: range_unasked,
            lambda: chunked(keep=rng.randrange(300_000)), lambda: wrong_range("bytes 3-{last}/{total}"),
            lambda: until_close(rng.randrange(300_000)), lambda: other(b"no")]
    succeeded = 0
    for trial in range(40):
        hub.scripts[NAME] = [rng.choice(menu)() for _ in range(6)] + [serve]
        hub.requests.clear()
        directory = tmp_path / str(trial)
        pull = Pull(hub, directory)
        for _ in range(3):
            succeeded += pull.run()["ok"]
            assert len(hub.asked(NAME)) <= 3 * (ATTEMPTS + 4)
    assert succeeded > 40


def kipp_environment(hub, home, **more):
    return ENVIRONMENT | {"HF_ENDPOINT": hub.url, "KIPP_HOME": str(home)} | more


class TestCommand:
    def run(self, hub, home, *arguments, **environment):
        return subprocess.run([KIPP, "pull", *arguments], env=kipp_environment(hub, home, **environment),
                              capture_output=True, text=True, timeout=60)

    def test_unknown_id(self, hub, tmp_path):
        result = self.run(hub, tmp_path, "qwen3-9b")
        assert result.returncode == 2
        assert result.stderr.startswith("kipp pull: checkpoint: expected one of qwen3-0.6b-base")

    def test_demo_needs_no_download(self, hub, tmp_path):
        result = self.run(hub, tmp_path, "kipp-demo")
        assert result.returncode == 2 and "ships with kipp" in result.stderr

    def test_not_found(self, hub, tmp_path):
        result = self.run(hub, tmp_path, "qwen3-0.6b", HF_TOKEN="secret")
        assert result.returncode == 1
        assert "not found (status 404)" in result.stderr and "Qwen/Qwen3-0.6B" in result.stderr
        assert hub.requests[0].path.startswith("/Qwen/Qwen3-0.6B/resolve/c1899de289a04d12100db370d81485cdf75e47ca/")
        assert hub.requests[0].headers["authorization"] == "Bearer secret"

    def test_interrupt(self, hub, tmp_path):
        hub.prefix = "/Qwen/Qwen3-0.6B/"
        hub.files["generation_config.json"] = b"{" + b" " * 238
        hub.scripts["generation_config.json"] = [stall(100)]
        process = subprocess.Popen([KIPP, "pull", "qwen3-0.6b", "--dir", tmp_path / "d"], stderr=subprocess.PIPE, text=True,
                                   env=kipp_environment(hub, tmp_path))
        hub.wait_for("generation_config.json")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "kipp pull: interrupted" in errors and "resumes" in errors
        assert (tmp_path / "d" / "generation_config.json.partial").stat().st_size == 100

    def test_small_files(self, hub, tmp_path):
        """The real pins, on real bytes: what the repository has of the 0.6B base checkpoint."""
        facts = json.loads((ROOT / "tests/data/registry_facts.json").read_text())
        entry = next(c for c in facts["checkpoints"] if c["checkpoint"] == "Qwen/Qwen3-0.6B-Base")
        hub.prefix = f"/Qwen/Qwen3-0.6B-Base/resolve/{entry['revision']}/"
        hub.files = small_files(entry)
        result = self.run(hub, tmp_path, "qwen3-0.6b-base", "--no-weights", "--json")
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        assert {f["name"] for f in report["files"]} == set(hub.files)
        assert all(f["verified"] for f in report["files"])
        home = tmp_path / "hub" / "Qwen--Qwen3-0.6B-Base" / entry["revision"]
        assert report["directory"] == str(home)
        for name, content in hub.files.items():
            assert (home / name).read_bytes() == content
        again = self.run(hub, tmp_path, "qwen3-0.6b-base", "--no-weights")
        assert again.returncode == 0 and again.stdout.count("already here") == len(hub.files)


def small_files(entry):
    """The bytes of everything but the weights: vocab.json and merges.txt say nothing that tokenizer.json does not."""
    data = ROOT / "tests" / "data"
    with (data / "tokenizer.base.json.zst").open("rb") as packed:
        tokenizer = zstandard.ZstdDecompressor().stream_reader(packed).read()
    model = json.loads(tokenizer)["model"]
    files = {"config.json": (data / "hub/config.0.6B-Base.json").read_bytes(),
             "generation_config.json": (data / "hub/generation_config.base.json").read_bytes(),
             "tokenizer.json": tokenizer,
             "tokenizer_config.json": (data / "hub/tokenizer_config.base.json").read_bytes(),
             "vocab.json": json.dumps(model["vocab"], ensure_ascii=False, separators=(",", ":")).encode(),
             "merges.txt": "\n".join(["#version: 0.2", *model["merges"], ""]).encode()}
    assert set(files) == {f["name"] for f in entry["files"]} - {NAME}
    return files
