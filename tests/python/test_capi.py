"""libkipp.so as programs in other languages meet it: the demo checkpoint through ctypes, and what is installed."""
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build"))
HEADER = ROOT / "include" / "kipp" / "kipp.h"
VERSION = re.search(r"project\(kipp VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
QUESTIONS = ["Hello!", "Tell me a story about a lost kite."]
STORY = "Once upon a time there was a little boat. It sailed over the sea, and it met a fish, a bird and a cat. " * 3
INVALID, REFUSED, IO, EXHAUSTED, INTERRUPTED = 1, 2, 3, 5, 6
STOP, LENGTH, CUT = 0, 1, 2  # kipp_finish


def run(*command, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def sanitizers(library):
    """The runtimes that a sanitized library needs and that have to be loaded before anything else."""
    needed = re.findall(r"\(NEEDED\).*\[(lib(?:asan|tsan)\.so.*)\]", run("readelf", "-d", library))
    return [run("g++", f"-print-file-name={name}").strip() for name in needed]


def client(scenario, *arguments):
    library = BUILD / "libkipp.so"
    environment = os.environ | {"LD_PRELOAD": " ".join(sanitizers(library)),
                                "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}  # python itself leaks
    return json.loads(run(sys.executable, HERE / "kipp_ctypes.py", library, scenario, *arguments, env=environment))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("kipp-home")


@pytest.fixture(scope="module")
def model(home):
    kipp(home, "run", "--prompt", "x", "--max-tokens", "0")
    (path,) = (home / "models").iterdir()
    return path


def kipp(home, *arguments, stdin=""):
    return run(BUILD / "kipp", *arguments, input=stdin, env=os.environ | {"KIPP_HOME": str(home)})


@pytest.fixture(scope="module")
def chat(home, model):
    """What `kipp chat` answers to the questions."""
    lines = kipp(home, "chat", "--temperature", "0", "--max-tokens", "60", "--json", stdin="\n".join(QUESTIONS) + "\n")
    return [json.loads(line) for line in lines.splitlines()]


def test_a_conversation_has_the_tokens_of_kipp_chat(model, chat):
    turns = client("converse", model, json.dumps(QUESTIONS))
    assert [turn["tokens"] for turn in turns] == [turn["tokens"] for turn in chat]
    assert [turn["text"] for turn in turns] == [turn["text"] for turn in chat]
    assert [turn["prompt"] for turn in turns] == [turn["usage"]["prompt_tokens"] for turn in chat]
    assert [turn["reused"] for turn in turns] == [turn["usage"]["cached_tokens"] for turn in chat]
    assert turns[1]["reused"] > 20


def test_a_text_has_the_tokens_of_kipp_run(home, model):
    flags = {"temperature": 0.8, "top-k": 40, "top-p": 0.95, "min-p": 0.01, "repetition-penalty": 1.1, "presence-penalty": 0.25,
             "frequency-penalty": 0.125, "logit-bias": "264=-3", "seed": 7, "max-tokens": 40}
    prompt = "Once upon a time"
    expected = json.loads(kipp(home, "run", "--json", "--prompt", prompt, *[f"--{name}={value}" for name, value in flags.items()]))
    found = client("complete", model, prompt)
    assert found["tokens"] == found["generated"] == expected["tokens"] and len(found["tokens"]) == 40
    assert found["text"] == expected["text"]
    assert found["finish"] == LENGTH and found["drawn"] == 40 and found["reused"] == 3  # all but the last of the prompt's 4
    assert found["same"] and found["drafted"]["0"] == [0, 0]
    assert found["drafted"]["8"][0] >= found["drafted"]["8"][1] > 10
    assert found["in_session"] == 4 + 39  # the last one drawn is not appended


def test_every_way_to_the_same_tokens_gives_the_same_bits(model):
    seen = client("continuations", model, STORY)
    pool = seen.pop("pool")
    assert seen == {"fork": True, "batch": True, "scored": True, "match": 64}
    assert pool["total"] == pool["free_blocks"] + pool["private_blocks"] + pool["pinned"] + pool["evictable"] == 64
    assert pool["published"] > 0 and pool["deduplicated"] > 0


def test_a_saved_session_goes_on_in_another_process(model, tmp_path):
    saved = client("save", model, STORY, tmp_path / "session")
    assert client("load", model, tmp_path / "session", "cpu") == saved and len(saved["next"]) == 20
    assert "backend: expected a session of reference, found one of cpu" in client("load", model, tmp_path / "session", "reference")["error"]


def test_callbacks_report_and_stop(model):
    seen = client("stop", model)
    assert seen["loading"][0] == seen["loading"][1] > 0
    assert seen["status"] == INTERRUPTED and "interrupted after 512 of" in seen["error"]
    assert seen["seen"] == [[0, seen["total"]], [512, seen["total"]]]
    assert seen["logits"] == INVALID and seen["resumed"] == 512
    assert seen["finish"] == CUT and seen["pieces"] == 3
    assert seen["stopped"] == STOP and "a" not in seen["before_stop"]


def test_threads_take_turns(model):
    assert client("threads", model) is True


def test_misuse_is_answered_with_a_sentence(model):
    seen = client("misuse", model)
    assert seen.pop("a handle is never given twice") is True
    assert seen.pop("length after all that") == 2
    *_, needed, first = seen["a small buffer"]
    assert (needed, first) == (4, -7)  # the count is told, the buffer untouched
    inside = {name: answer for name, *answer in seen.pop("from within")}
    assert inside.pop("tokenize") == [0, ""]
    assert all(status == INVALID and "from within" in sentence for status, sentence in inside.values()) and len(inside) == 5

    fine = {"an older caller", "a newer member not in use", "no text", "close at last"}
    others = {"open what is not there": IO, "open what is no model": REFUSED, "a cache beyond all memory": EXHAUSTED,
              "capacity beyond the pool": EXHAUSTED, "sync too much": EXHAUSTED, "save into a file": IO, "load what is not there": IO,
              "load what is no session": REFUSED, "meddling callback": INTERRUPTED, "a policy that is not proven": REFUSED}
    assert (fine | set(others)) <= set(seen) and len(seen) > 100
    for name, (status, sentence, *_) in seen.items():
        assert status == (0 if name in fine else others.get(name, INVALID)), (name, sentence)
        assert (sentence == "") == (name in fine) and "\n" not in sentence, name
    for name, part in {"unknown backend": 'expected one of cpu, reference, cuda, webgpu; found "gpu"',
                       "an adapter of a backend without any": 'expected one with backend webgpu only, found "0" with backend cpu', "unknown policy": 'expected bf16, int8, tiered, tiered-max, or a policy as in',
                       "close with sessions": "expected all its sessions closed, found 1 open", "close twice": "found one that is closed",
                       "info of NULL": "found NULL", "a batch of two models": "expected sessions of one model",
                       "a newer member in use": "found a member of a newer version in use"}.items():
        assert part in seen[name][1]


def declared():
    return set(re.findall(r"^KIPP_API [^;(]*?\b(kipp_\w+)\(", HEADER.read_text(), re.M))


def test_shows_exactly_what_the_header_declares():
    symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", BUILD / "libkipp.so").splitlines()]
    assert sorted(symbols) == sorted(declared()) and len(symbols) > 20


class Installed:
    """`cmake --install` of the build at hand, moved afterwards: nothing in it may remember where it was made."""

    def __init__(self, folder):
        run("cmake", "--install", BUILD, "--prefix", folder / "made")
        self.prefix = (folder / "made").rename(folder / "moved")
        (library,) = self.prefix.rglob("libkipp.so")
        self.lib = library.parent
        self.environment = os.environ | {"PKG_CONFIG_PATH": str(self.lib / "pkgconfig"), "LD_LIBRARY_PATH": str(self.lib)}
        flags = {"libasan": "-fsanitize=address,undefined", "libtsan": "-fsanitize=thread"}
        self.flags = [flags[pathlib.Path(s).name.split(".")[0]] for s in sanitizers(library)]

    def run(self, *command, **options):
        return run(*command, env=self.environment, **options)

    def answers(self, program, model):
        return self.run(program, model, *QUESTIONS).splitlines()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("installed"))


def test_installs_program_library_header_and_packages_alone(installed):
    lib = installed.lib.relative_to(installed.prefix)
    minor = ".".join(VERSION.split(".")[:2])
    found = {str(p.relative_to(installed.prefix)) for p in installed.prefix.rglob("*") if not p.is_dir()}
    cache = (BUILD / "CMakeCache.txt").read_text()
    build_type = re.search(r"CMAKE_BUILD_TYPE:STRING=(\w+)", cache)[1].lower()
    # WebGPU's library is no package of the system's: it comes along and is found beside the others.
    webgpu = "KIPP_WEBGPU:BOOL=ON" in cache
    assert found == {"bin/kipp", "include/kipp/kipp.h", f"{lib}/libkipp.so", f"{lib}/libkipp.so.{minor}", f"{lib}/libkipp.so.{VERSION}",
                     f"{lib}/pkgconfig/kipp.pc", f"{lib}/cmake/kipp/kipp-config.cmake", f"{lib}/cmake/kipp/kipp-config-version.cmake",
                     f"{lib}/cmake/kipp/kipp-config-{build_type}.cmake"} | ({f"{lib}/libwgpu_native.so"} if webgpu else set())
    dynamic = installed.run("readelf", "-d", installed.lib / "libkipp.so")
    assert re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == [f"libkipp.so.{minor}"]
    assert re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic) == ([f"$ORIGIN:$ORIGIN/../{lib}"] if webgpu else [])
    assert installed.run(installed.prefix / "bin/kipp", "--version") == f"kipp {VERSION}\n"
    assert (installed.prefix / "include/kipp/kipp.h").read_text() == HEADER.read_text()
    assert installed.run("pkg-config", "--modversion", "kipp").strip() == VERSION


def test_the_example_builds_with_pkg_config(installed, model, chat, tmp_path):
    flags = installed.run("pkg-config", "--cflags", "--libs", "kipp").split()
    installed.run("cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", ROOT / "examples" / "embed.c", *installed.flags, *flags,
                  "-o", tmp_path / "embed")
    answers = installed.answers(tmp_path / "embed", model)
    assert answers[0] == chat[0]["text"] and answers[1].startswith(chat[1]["text"])


def test_the_example_builds_with_cmake(installed, model, chat, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(textwrap.dedent(f"""
        cmake_minimum_required(VERSION 3.25)
        project(consumer LANGUAGES C)
        find_package(kipp {VERSION} REQUIRED)
        add_executable(embed {ROOT}/examples/embed.c)
        target_link_libraries(embed PRIVATE kipp::kipp)
        """))
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed.prefix}",
                 f"-DCMAKE_C_FLAGS={' '.join(installed.flags)}"]
    installed.run(*configure)
    installed.run("ninja", "-C", tmp_path / "build")
    assert installed.answers(tmp_path / "build" / "embed", model)[0] == chat[0]["text"]

    lists = tmp_path / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace(f"kipp {VERSION} ", "kipp 7.1 "))
    with pytest.raises(AssertionError, match=r'compatible\s+with\s+requested\s+version\s+"7.1"'):
        installed.run(*configure)


def test_the_header_is_c11_and_cpp(tmp_path):
    for compiler, flags in {"cc": ["-x", "c", "-std=c11"], "g++": ["-x", "c++", "-std=c++98"], "clang": ["-x", "c", "-std=c11"]}.items():
        (tmp_path / "only").write_text("#include <kipp/kipp.h>\n")
        run(compiler, *flags, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}", tmp_path / "only")


def test_the_guide_shows_the_example_that_is_built():
    guide = (ROOT / "docs" / "EMBEDDING.md").read_text()
    assert re.findall(r"```c\n(.*?)```", guide, re.S) == [(ROOT / "examples" / "embed.c").read_text()]
