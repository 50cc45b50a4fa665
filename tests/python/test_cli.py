"""`kipp run` and `kipp chat` as a user meets them: the built binary on a tiny model with random weights."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIPP = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "kipp"
STATS = re.compile(r"prompt (\d+) tokens(?: \(\d+ reused\))?, [\d.]+ tok/s; decode (\d+) tokens, [\d.]+ tok/s; finish: (\w+)\n$")
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "tiny.gguf"
    subprocess.run([KIPP, "synthesize", "--shape", "tiny-tied", "--seed", "3", "--out", path], check=True, capture_output=True)
    return ["--model", str(path), "--allow-synthetic"]


def kipp(*arguments, stdin=subprocess.DEVNULL, **options):
    if isinstance(stdin, (str, bytes)):
        options["input"] = stdin.encode() if isinstance(stdin, str) else stdin
    else:
        options["stdin"] = stdin
    return subprocess.run([KIPP, *arguments], capture_output=True, timeout=120, **options)


def greedy(model, *arguments, **options):
    return kipp("run", *model, "--temperature", "0", *arguments, **options)


def test_run_prints_the_same_text_twice(model):
    first = greedy(model, "--prompt", PROMPT, "--max-tokens", "24")
    second = greedy(model, "--prompt", PROMPT, "--max-tokens", "24")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout and first.stdout.endswith(b"\n")
    assert STATS.search(first.stderr.decode()).groups() == ("4", "24", "length")


def test_prompt_comes_from_argument_file_or_standard_input(model, tmp_path):
    def logits(*arguments, **options):
        return json.loads(greedy(model, *arguments, "--max-tokens", "0", "--json", **options).stdout)["logits_hash"]

    expected = logits("--prompt", PROMPT)
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT + "\n")
    assert logits("--file", file) == expected
    assert logits(stdin=PROMPT) == expected
    assert logits(stdin=PROMPT + "\n") == expected
    assert logits(stdin=PROMPT + "\n\n") != expected


def test_prompt_bytes_need_not_be_utf8(model):
    run = greedy(model, "--max-tokens", "2", "--json", stdin=b"caf\xe9 \xff")
    assert run.returncode == 0 and json.loads(run.stdout)["usage"]["prompt_tokens"] >= 4


def test_control_tokens_in_a_prompt_are_text_unless_asked_for(model):
    count = {}
    for flags in [], ["--special"]:
        run = greedy(model, "--prompt", "<|im_start|>", "--max-tokens", "0", "--json", *flags)
        count[bool(flags)] = json.loads(run.stdout)["usage"]["prompt_tokens"]
    assert count[True] == 1 and count[False] > 3


def test_json_is_one_object_with_everything(model):
    run = kipp("run", *model, "--prompt", PROMPT, "--max-tokens", "5", "--temperature", "1", "--seed", "77", "--json")
    lines = run.stdout.decode().splitlines()
    assert len(lines) == 1
    reply = json.loads(lines[0])
    assert set(reply) == {"model", "scheme", "backend", "text", "tokens", "finish_reason", "stop", "seed", "usage", "timings",
                          "logits_hash"}
    assert reply["model"] == "tiny-tied" and reply["scheme"] == "bf16" and reply["backend"] == "cpu"
    assert reply["seed"] == 77 and reply["finish_reason"] == "length" and reply["stop"] is None
    assert len(reply["tokens"]) == 5 and all(0 <= token < 151669 for token in reply["tokens"])
    assert reply["usage"] == {"prompt_tokens": 4, "cached_tokens": 0, "completion_tokens": 5, "total_tokens": 9}
    assert set(reply["timings"]) == {"prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms",
                                     "predicted_per_second"}
    assert re.fullmatch("[0-9a-f]{16}", reply["logits_hash"])


def test_the_reported_seed_repeats_a_run_and_seeds_differ(model):
    arguments = ["run", *model, "--prompt", PROMPT, "--max-tokens", "12", "--temperature", "50", "--json"]
    runs = [json.loads(kipp(*arguments).stdout) for _ in range(2)]
    assert runs[0]["seed"] != runs[1]["seed"] and runs[0]["tokens"] != runs[1]["tokens"]
    again = json.loads(kipp(*arguments, "--seed", str(runs[0]["seed"])).stdout)
    assert again["tokens"] == runs[0]["tokens"] and again["logits_hash"] == runs[0]["logits_hash"]


def test_verbose_names_model_sampling_and_hash(model):
    arguments = ["--prompt", PROMPT, "--max-tokens", "3", "--seed", "9"]
    text = greedy(model, *arguments, "--verbose").stderr.decode()
    reply = json.loads(greedy(model, *arguments, "--json").stdout)
    assert "tiny-tied (synthetic, instruct)" in text and "temperature 0" in text and "seed 9" in text
    assert f"last logits: {reply['logits_hash']}" in text


def test_threads_and_where_weights_live_change_no_bit(model):
    runs = {}
    for flags in [], ["--threads", "1"], ["--threads", "5"], ["--weights", "mapped"], ["--backend", "cpu", "--threads", "0"]:
        reply = json.loads(greedy(model, "--prompt", PROMPT, "--max-tokens", "12", "--json", *flags).stdout)
        runs[" ".join(flags)] = (reply["backend"], reply["tokens"], reply["logits_hash"])
    assert len(set(map(str, runs.values()))) == 1, runs
    text = greedy(model, "--prompt", PROMPT, "--max-tokens", "1", "--threads", "3", "--verbose").stderr.decode()
    assert "backend cpu on 3 threads" in text


def test_the_reference_backend_agrees(model):
    arguments = ["--prompt", PROMPT, "--max-tokens", "12", "--json"]
    reference = json.loads(greedy(model, *arguments, "--backend", "reference", "--weights", "mapped").stdout)
    assert reference["backend"] == "reference"
    assert reference["tokens"] == json.loads(greedy(model, *arguments).stdout)["tokens"]


def test_stop_string_cuts_the_text(model):
    # Bias makes the model say one word for ever.
    forced = [*model, "--prompt", PROMPT, "--max-tokens", "20", "--logit-bias", "9707=100", "--temperature", "0", "--json"]
    reply = json.loads(kipp("run", *forced, "--stop", "nothing", "--stop", "loHel").stdout)
    assert reply["text"] == "Hel" and reply["finish_reason"] == "stop" and reply["stop"] == "loHel"
    assert reply["usage"]["completion_tokens"] == 2


def test_stop_token_ends_unless_ignored(model):
    forced = [*model, "--prompt", PROMPT, "--max-tokens", "4", "--logit-bias", "151645=100", "--temperature", "0", "--json"]
    reply = json.loads(kipp("run", *forced).stdout)
    assert (reply["text"], reply["tokens"], reply["finish_reason"]) == ("", [151645], "stop")
    ignored = json.loads(kipp("run", *forced, "--ignore-eos").stdout)
    assert (ignored["text"], ignored["tokens"], ignored["finish_reason"]) == ("", [151645] * 4, "length")


def test_limits_of_length(model):
    nothing = json.loads(greedy(model, "--prompt", PROMPT, "--max-tokens", "0", "--json").stdout)
    assert (nothing["text"], nothing["tokens"], nothing["finish_reason"]) == ("", [], "length")
    full = json.loads(greedy(model, "--prompt", PROMPT, "--max-tokens", "2147483647", "--context", "16", "--json").stdout)
    assert full["finish_reason"] == "length" and full["usage"]["completion_tokens"] == 13


EXTREME = ["--temperature=1e-38", "--temperature=1e30", "--temperature=-0.0", "--top-p=1e-30", "--top-k=2147483647",
           "--min-p=1", "--repetition-penalty=1e-30", "--seed=18446744073709551615"]


@pytest.mark.parametrize("flag", EXTREME)
def test_extreme_values_work(model, flag):
    run = kipp("run", *model, "--prompt", PROMPT, "--max-tokens", "4", flag)
    assert run.returncode == 0, run.stderr


BAD_VALUES = {
    "--max-tokens=-1": "at least 0", "--max-tokens=1.5": "whole number", "--max-tokens=1e18": "whole number",
    "--max-tokens=99999999999": "whole number", "--temperature=nan": "finite",
    "--temperature=inf": "finite", "--temperature=1e999": "number", "--temperature=-0.1": "at least 0",
    "--temperature=warm": "number", "--top-k=-1": "at least 0", "--top-k=2.5": "whole number", "--top-p=0": "above 0",
    "--top-p=1.01": "at most 1", "--top-p=nan": "above 0", "--min-p=-0.1": "from 0 to 1", "--min-p=2": "from 0 to 1",
    "--repetition-penalty=0": "above 0", "--presence-penalty=2.5": "from -2 to 2", "--frequency-penalty=-3": "from -2 to 2",
    "--logit-bias=5": "ID=VALUE", "--logit-bias=AI=-100": "whole number", "--logit-bias=191222=-100": "token ids",
    "--logit-bias=-1=5": "token ids", "--logit-bias=5=1e9": "from -100 to 100", "--seed=-1": "whole number",
    "--seed=18446744073709551616": "whole number", "--context=0": "1 to 2048", "--context=4096": "1 to 2048",
    "--context=many": "whole number", "--threads=-1": "at least 0", "--threads=1025": "1 to 1024",
    "--threads=two": "whole number", "--weights=heavy": "packed or mapped", "--backend=abacus": "abacus", "--scheme=q9": "q9", "--scheme=q8_0": "bf16",
}


@pytest.mark.parametrize("flag", BAD_VALUES)
def test_a_bad_value_gets_a_sentence_and_exit_code_2(model, flag):
    run = kipp("run", *model, "--prompt", PROMPT, flag)
    message = run.stderr.decode()
    assert run.returncode == 2 and run.stdout == b"", message
    assert message.startswith("kipp run: ") and message.count("\n") == 1 and BAD_VALUES[flag] in message, message


@pytest.mark.parametrize("arguments,code,part", [
    (["--prompt", ""], 2, "prompt: expected text, found none"),
    ([], 2, "prompt: expected text, found none"),
    (["--file", "/nowhere/at/all"], 1, "/nowhere/at/all: cannot read"),
    (["--prompt", "x", "--file", "y"], 2, "--file"),
    (["--prompt"], 2, "--prompt"),
    (["--prompt", "x", "--quick"], 2, "--quick"),
    (["--prompt", "x", *sum((["--stop", str(i)] for i in range(5)), [])], 2, "at most 4"),
    (["--prompt", "x", "--stop", ""], 2, "stop[0]: expected text, found an empty string"),
    (["--prompt", "x", "--logit-bias", "5=1", "--logit-bias", "5=2"], 2, "found 5 twice"),
    (["--prompt", "x " * 3000], 2, "prompt: expected at most 2048 tokens"),
    (["--prompt", PROMPT, "--context", "3"], 2, "prompt: expected at most 3 tokens (--context), found 4"),
])
def test_what_cannot_run_says_why(model, arguments, code, part):
    run = kipp("run", *model, *arguments)
    assert run.returncode == code and part in run.stderr.decode(), run.stderr
    assert run.stdout == b""


def test_models_that_are_not_there(model, tmp_path):
    home = {"env": {**os.environ, "KIPP_HOME": str(tmp_path)}}
    unknown = kipp("run", "--model", "qwen9", "--prompt", "x", **home)
    assert unknown.returncode == 2 and b"qwen3-0.6b" in unknown.stderr
    absent = kipp("run", "--model", "qwen3-0.6b", "--prompt", "x", **home)
    assert absent.returncode == 1 and b"kipp pull qwen3-0.6b" in absent.stderr and b"kipp convert" in absent.stderr
    synthetic = kipp("run", "--model", model[1], "--prompt", "x", **home)
    assert synthetic.returncode == 1 and b"synthetic" in synthetic.stderr


def run_json(model, *arguments):
    done = greedy(model, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_saved_session_spares_the_work_and_changes_no_bit(model, tmp_path):
    saved = tmp_path / "saved"
    prompt = PROMPT * 30
    cold = run_json(model, "--prompt", prompt + " and so on", "--max-tokens", "8")
    first = run_json(model, "--prompt", prompt, "--max-tokens", "8", "--save-session", saved)
    kept = saved.read_bytes()
    warm = run_json(model, "--prompt", prompt + " and so on", "--max-tokens", "8", "--load-session", saved)
    assert warm["usage"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - 1
    assert [warm[key] for key in ("tokens", "logits_hash")] == [cold[key] for key in ("tokens", "logits_hash")]
    assert saved.read_bytes() == kept  # loading writes nothing

    # A prompt that has nothing in common with it is read from its beginning.
    other = run_json(model, "--prompt", "Something else", "--max-tokens", "8", "--load-session", saved)
    assert other["usage"]["cached_tokens"] == 0
    assert other["logits_hash"] == run_json(model, "--prompt", "Something else", "--max-tokens", "8")["logits_hash"]


def test_a_continued_session_goes_on_where_the_text_was_cut(model, tmp_path):
    saved = tmp_path / "saved"
    whole = run_json(model, "--prompt", PROMPT, "--max-tokens", "24")
    run = run_json(model, "--prompt", PROMPT, "--max-tokens", "8", "--save-session", saved)
    tokens = run["tokens"]
    while len(tokens) < 24:  # an empty prompt adds nothing
        more = run_json(model, "--continue", "--load-session", saved, "--save-session", saved, "--prompt", "",
                        "--max-tokens", "8")
        assert more["usage"]["cached_tokens"] == more["usage"]["prompt_tokens"] - 1
        tokens += more["tokens"]
    assert tokens == whole["tokens"] and more["logits_hash"] == whole["logits_hash"]


def test_a_session_that_does_not_fit_is_refused_and_nothing_is_written_over(model, tmp_path):
    saved, damaged = tmp_path / "saved", tmp_path / "damaged"
    run_json(model, "--prompt", PROMPT, "--max-tokens", "4", "--save-session", saved)
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    refusals = [
        (["--load-session", damaged], 2, "--load-session: .*damaged"),
        (["--load-session", saved, "--backend", "reference"], 2, "backend: expected a session of reference, found one of cpu"),
        (["--load-session", saved, "--context", "4"], 2, "do not fit into its capacity of 4"),
        (["--load-session", ROOT / "README.md"], 2, "expected a saved session, found another kind of file"),
        (["--load-session", tmp_path / "absent"], 1, "cannot open: No such file"),
        (["--save-session", tmp_path], 2, "expected the name of a file to write, found a directory"),
    ]
    for arguments, code, sentence in refusals:
        if "--save-session" not in arguments:
            arguments = [*arguments, "--save-session", damaged]
        done = greedy(model, "--prompt", PROMPT, "--max-tokens", "4", *arguments)
        assert done.returncode == code and done.stdout == b"", (arguments, done.stderr)
        assert re.search(sentence, done.stderr.decode()), done.stderr
        assert damaged.read_bytes() == data
    done = kipp("run", *model, "--prompt", PROMPT, "--temperature", "-1", "--save-session", damaged)
    assert done.returncode == 2 and damaged.read_bytes() == data


def test_inspect_shows_what_a_session_holds(model, tmp_path):
    saved = tmp_path / "saved"
    run = run_json(model, "--prompt", PROMPT * 20, "--max-tokens", "4", "--save-session", saved)
    shown = json.loads(kipp("inspect", "--json", saved).stdout)
    assert shown["kind"] == "session" and shown["kv"] == "bf16" and shown["scheme"] == "bf16" and shown["backend"] == "cpu"
    assert shown["tokens"] == run["usage"]["total_tokens"]
    assert sum(part["bytes"] for part in shown["parts"]) == shown["file_bytes"] == saved.stat().st_size
    text = kipp("inspect", saved).stdout.decode()
    assert re.search(rf"tokens +{shown['tokens']}\n", text) and "keys and values" in text
    saved.write_bytes(saved.read_bytes()[:-1])
    done = kipp("inspect", saved)
    assert done.returncode == 1 and b"expected" in done.stderr


def test_closed_standard_input_is_a_sentence(model):
    run = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", KIPP, "run", *model], capture_output=True, timeout=60)
    assert run.returncode == 2 and b"prompt: expected" in run.stderr
    chat = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", KIPP, "chat", *model], capture_output=True, timeout=60)
    assert chat.returncode == 0 and chat.stdout == b""


def test_a_full_disk_is_a_sentence(model):
    with open("/dev/full", "wb") as full:
        run = subprocess.run([KIPP, "run", *model, "--prompt", "x", "--max-tokens", "2"], stdout=full, stderr=subprocess.PIPE,
                             stdin=subprocess.DEVNULL, timeout=60)
    assert run.returncode == 1 and b"standard output: cannot write" in run.stderr


def read_some(process, n):
    data = b""
    while len(data) < n:
        chunk = os.read(process.stdout.fileno(), 4096)
        assert chunk, "the stream ended early"
        data += chunk
    return data


def test_interrupt_stops_cleanly_and_keeps_what_there_is(model):
    arguments = ["run", *model, "--temperature", "0", "--prompt", PROMPT, "--ignore-eos"]
    process = subprocess.Popen([KIPP, *arguments, "--max-tokens", "2000"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    begun = read_some(process, 1)  # it streams
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    _, decoded, finish = STATS.search(errors.decode()).groups()
    assert finish == "interrupted" and 1 <= int(decoded) < 2000
    assert begun + rest == kipp(*arguments, "--max-tokens", decoded).stdout


def chat(model, lines, *arguments):
    run = kipp("chat", *model, "--temperature", "0", "--max-tokens", "4", "--verbose", *arguments,
               stdin="".join(line + "\n" for line in lines))
    return run, re.findall(r"turn (\d+): (\d+) reused, (\d+) new", run.stderr.decode())


def test_chat_holds_three_turns_and_evaluates_only_what_is_new(model):
    run, turns = chat(model, ["Hello", "What then?", "And then?"])
    assert run.returncode == 0 and len(run.stdout.decode().splitlines()) == 3
    counts = [(int(reused), int(new)) for _, reused, new in turns]
    assert counts[0][0] == 0
    # Everything of the last prompt and answer but the answer's last token.
    assert counts[1][0] == sum(counts[0]) + 3 and counts[2][0] == sum(counts[1]) + 3
    assert re.search(r"3 turns, \d+ of 2048 positions in use; prompt \d+ tokens evaluated", run.stderr.decode())


def test_chat_answers_each_line_before_the_next_is_sent(model):
    process = subprocess.Popen([KIPP, "chat", *model, "--temperature", "0", "--max-tokens", "4"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    answers = []
    for line in ["Hello", "What then?", "And then?"]:
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
        answers.append(process.stdout.readline())
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    assert b"".join(answers) == chat(model, ["Hello", "What then?", "And then?"])[0].stdout


def test_chat_commands(model):
    run, turns = chat(model, ["/help", "Hello", "/reset", "Hello", "/system Be brief.", "Hello", "/think off", "/stats",
                              "//slash", "", "  ", "/quit", "never sent"])
    assert run.returncode == 0 and len(turns) == 4
    lines = run.stdout.decode().splitlines()
    assert lines[0] == lines[1]
    assert int(turns[2][2]) > int(turns[1][2])  # the system message changes the prompt from its beginning
    bad, turns = chat(model, ["/dance", "/think perhaps", "Hello"])
    assert bad.returncode == 0 and len(turns) == 1
    assert "/dance: no such command" in bad.stderr.decode() and "expected on or off" in bad.stderr.decode()


def test_chat_json_is_one_object_per_answer(model):
    run, _ = chat(model, ["Hello", "What then?"], "--json", "--seed", "5")
    replies = [json.loads(line) for line in run.stdout.decode().splitlines()]
    assert [reply["turn"] for reply in replies] == [1, 2]
    for reply in replies:
        assert reply["content"] == reply["text"] and reply["reasoning_content"] is None and reply["seed"] == 5
    assert replies[0]["usage"]["cached_tokens"] == 0 and replies[1]["usage"]["cached_tokens"] > 0


def test_chat_that_outgrows_its_context_says_so_and_goes_on(model):
    run, turns = chat(model, ["Hello", "word " * 100, "Hello again"], "--context", "64")
    assert run.returncode == 1 and len(turns) == 2
    assert "the session holds 64; /reset forgets it" in run.stderr.decode()
    assert int(turns[1][1]) > 0


def test_chat_draws_differ_by_turn_and_repeat_by_seed(model):
    arguments = ["chat", *model, "--temperature", "50", "--max-tokens", "8", "--seed", "4"]
    lines = "Hello\n/reset\nHello\n"
    first = kipp(*arguments, stdin=lines).stdout
    assert first == kipp(*arguments, stdin=lines).stdout
    assert len(set(first.split(b"\n"))) > 2


@pytest.mark.parametrize("flag,part", [("--max-tokens=0", "at least 1"), ("--temperature=x", "number"), ("--context=1e9", "whole")])
def test_chat_refuses_bad_values(model, flag, part):
    run = kipp("chat", *model, flag)
    assert run.returncode == 2 and run.stderr.decode().startswith("kipp chat: ") and part in run.stderr.decode()


@pytest.mark.parametrize("words,sentence", [
    (["run", "--bogus"], "kipp run: The following argument was not expected: --bogus"),
    (["chat", "--max-tokens"], "kipp chat: --max-tokens: 1 required"),
    (["nonsense"], 'kipp: expected a subcommand, found "nonsense"'),
    ([], "kipp: A subcommand is required"),
])
def test_a_command_line_that_says_nothing_gets_a_sentence(words, sentence):
    run = kipp(*words)
    assert run.returncode == 2 and run.stdout == b""
    assert run.stderr.decode().startswith(sentence) and "--help" in run.stderr.decode()


class Terminal:
    """`kipp chat` on a pseudo-terminal."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(KIPP, [str(KIPP), "chat", *arguments])
        self.seen = ""

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, pattern):
        """Output up to the first match, which is consumed."""
        deadline = time.time() + 60
        while not (match := re.search(pattern, self.seen)):
            assert time.time() < deadline, f"waited for {pattern!r} in {self.seen!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
        text, self.seen = self.seen[:match.end()], self.seen[match.end():]
        return text

    def leave(self, keys):
        """The exit code. Sends `keys` until they are heard: what arrives between two lines, before the terminal is
        in editing mode, may be lost."""
        deadline = time.time() + 60
        try:
            while time.time() < deadline:
                self.send(keys)
                while select.select([self.fd], [], [], 0.5)[0]:
                    os.read(self.fd, 65536)
            os.kill(self.pid, signal.SIGKILL)
        except OSError:  # the other end is closed
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_chat_on_a_terminal_survives_ctrl_c(model):
    terminal = Terminal(*model, "--temperature", "0", "--logit-bias", "9707=100")
    terminal.wait_for("> ")
    terminal.send("Hi\r")
    terminal.wait_for("HelloHello")  # the answer has begun
    terminal.send("\x03")
    terminal.wait_for(r"\(interrupted\)")
    terminal.wait_for("> ")
    terminal.send("half a line\x03")
    terminal.wait_for("/quit leaves")
    terminal.wait_for("> ")
    terminal.send("/stats\r")
    terminal.wait_for("1 turns, ")
    terminal.wait_for("> ")
    assert terminal.leave("\x04") == 0


def test_chat_on_a_terminal_dims_reasoning_and_drops_control_characters(model):
    thinking = Terminal(*model, "--temperature", "0", "--max-tokens", "3", "--logit-bias", "151667=100")
    thinking.wait_for("> ")
    thinking.send("Hi\r")
    thinking.wait_for(re.escape("\x1b[2m<think>"))
    thinking.wait_for(re.escape("\x1b[0m"))
    assert thinking.leave("/quit\r") == 0
    escape = Terminal(*model, "--temperature", "0", "--max-tokens", "2", "--logit-bias", "215=100")  # the byte 0x1b
    escape.wait_for("> ")
    escape.send("Hi\r")
    text = escape.wait_for(r"\(cut")
    assert "\x1b" not in text.split("\r\n", 1)[1]
    assert escape.leave("/quit\r") == 0
