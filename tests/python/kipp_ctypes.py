"""libkipp.so through ctypes, as a Python program would use it, without any wrapper library.

As a program it prints what one scenario saw as JSON: `kipp_ctypes.py LIBRARY SCENARIO ARGUMENT ...`. The tests run
it as a process of its own, so that a crash fails a test and a sanitized library can have its runtime loaded first.
"""
import ctypes
import json
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_size_t, c_uint64, c_void_p

OK, INVALID, REFUSED, IO, NETWORK, EXHAUSTED, INTERRUPTED = range(7)
PROGRESS = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32, c_int32)
TEXT = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(ctypes.c_char), c_size_t)
LOADING = ctypes.CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)
VOCAB_ROWS = 151936


class Sized(ctypes.Structure):
    def __init__(self, **members):
        super().__init__(**{"size": ctypes.sizeof(self)} | members)


class ModelOptions(Sized):
    _fields_ = [("size", c_size_t), ("backend", c_char_p), ("kv_policy", c_char_p), ("weights", c_char_p), ("threads", c_int32),
                ("kv_blocks", c_int32), ("allow_synthetic", c_int32), ("progress", LOADING), ("user", c_void_p), ("kv_sequences", c_int32),
                ("allow_unproven_kv", c_int32), ("adapter", c_char_p)]


class ModelInfo(Sized):
    _fields_ = [("size", c_size_t), ("id", c_char_p), ("scheme", c_char_p), ("backend", c_char_p), ("kv_policy", c_char_p),
                ("context_length", c_int32), ("kv_blocks", c_int32), ("threads", c_int32), ("max_step_tokens", c_int32),
                ("max_logit_rows", c_int32), ("can_chat", c_int32), ("block_bytes", c_uint64)]


class PoolStats(Sized):
    _fields_ = [("size", c_size_t)] + [(n, c_int32) for n in ("total", "free_blocks", "private_blocks", "pinned", "evictable", "reserved")] + \
               [(n, c_uint64) for n in ("lookups", "lookup_tokens", "hit_tokens", "published", "deduplicated", "evictions")]


class Message(ctypes.Structure):
    _fields_ = [(n, c_char_p) for n in ("role", "content", "reasoning", "tool_calls")]


class ChatOptions(Sized):
    _fields_ = [("size", c_size_t), ("tools", c_char_p), ("thinking", c_int32), ("no_generation_prompt", c_int32)]


class SessionOptions(Sized):
    _fields_ = [("size", c_size_t), ("capacity", c_int32), ("salt", c_uint64)]


class BatchItem(ctypes.Structure):
    _fields_ = [("session", c_void_p), ("tokens", POINTER(c_int32)), ("n", c_size_t)]


class LogitBias(ctypes.Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class Sampling(Sized):
    _fields_ = [("size", c_size_t), ("temperature", c_float), ("top_k", c_int32), ("top_p", c_float), ("min_p", c_float),
                ("repetition_penalty", c_float), ("presence_penalty", c_float), ("frequency_penalty", c_float), ("n_logit_bias", c_int32),
                ("logit_bias", POINTER(LogitBias)), ("seed", c_uint64)]


class GenerateOptions(Sized):
    _fields_ = [("size", c_size_t), ("sampling", POINTER(Sampling)), ("max_tokens", c_int32), ("ignore_eos", c_int32),
                ("max_draft", c_int32), ("stop", POINTER(c_char_p)), ("n_stop", c_size_t), ("progress", PROGRESS), ("text", TEXT), ("user", c_void_p)]


class Generation(Sized):
    _fields_ = [("size", c_size_t)] + [(n, c_int32) for n in ("finish", "prompt_tokens", "reused_tokens", "evaluated_tokens", "drawn_tokens",
                                                              "appended_tokens", "drafted_tokens", "accepted_tokens")] + [("prompt_seconds", c_double), ("decode_seconds", c_double)]


def ids(tokens):
    return (c_int32 * len(tokens))(*tokens)


class Kipp:
    """The functions by name, without `kipp_`; arguments are given as ctypes wants them."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.kipp_version.restype = self.lib.kipp_last_error.restype = c_char_p

    def error(self):
        return self.lib.kipp_last_error().decode()

    def status(self, name, *arguments):
        return getattr(self.lib, "kipp_" + name)(*arguments)

    def call(self, name, *arguments):
        if self.status(name, *arguments) != OK:
            raise RuntimeError(f"{name}: {self.error()}")

    def run(self, name, kind, *arguments):
        """A call that gives a run of values: asks for the count, then for them."""
        count = c_size_t()
        self.call(name, *arguments, None, c_size_t(0), byref(count))
        out = (kind * count.value)()
        self.call(name, *arguments, out, count, byref(count))
        return list(out) if kind is c_int32 else bytes(out)

    def open(self, path, **options):
        model = c_void_p()
        self.call("model_open", path.encode(), byref(ModelOptions(**{"backend": b"cpu", "kv_policy": b"bf16", "kv_blocks": 32} | options)),
                  byref(model))
        return model

    def session(self, model, capacity=512, salt=0):
        session = c_void_p()
        self.call("session_open", model, byref(SessionOptions(capacity=capacity, salt=salt)), byref(session))
        return session

    def tokenize(self, model, text, control=0):
        return self.run("tokenize", c_int32, model, text.encode(), c_size_t(len(text.encode())), c_int32(control))

    def detokenize(self, model, tokens):
        return self.run("detokenize", ctypes.c_char, model, ids(tokens), c_size_t(len(tokens)), c_int32(1)).decode()

    def chat_prompt(self, model, messages):
        array = (Message * len(messages))(*[Message(role=role.encode(), content=text.encode()) for role, text in messages])
        return self.run("chat_prompt", c_int32, model, array, c_size_t(len(messages)), None)

    def sync(self, session, prompt):
        reused = c_int32()
        self.call("session_sync", session, ids(prompt), c_size_t(len(prompt)), None, None, byref(reused))
        return reused.value

    def sample(self, session, sampling, prompt_tokens):
        token = c_int32()
        self.call("session_sample", session, sampling and byref(sampling), c_int32(prompt_tokens), byref(token))
        return token.value

    def is_stop(self, model, token):
        stop = c_int32()
        self.call("model_is_stop", model, c_int32(token), byref(stop))
        return bool(stop.value)

    def decode(self, model, session, n_prompt, max_tokens, sampling=None):
        """Draws and appends by hand; the tokens drawn, a stop token included."""
        drawn = []
        while len(drawn) < max_tokens:
            drawn.append(self.sample(session, sampling, n_prompt))
            if self.is_stop(model, drawn[-1]) or len(drawn) == max_tokens:
                break
            self.call("session_append", session, c_int32(drawn[-1]))
        return drawn

    def logits(self, session):
        row = POINTER(c_float)()
        self.call("session_logits", session, byref(row))
        return row[:VOCAB_ROWS]

    def generate(self, session, prompt, text=TEXT(), **options):
        generation = Generation()
        self.call("session_generate", session, ids(prompt), c_size_t(len(prompt)), byref(GenerateOptions(text=text, **options)),
                  byref(generation))
        return generation

    def pool(self, model):
        stats = PoolStats()
        self.call("model_pool_stats", model, byref(stats))
        return {name: getattr(stats, name) for name, _ in PoolStats._fields_[1:]}


def converse(kipp, path, questions):
    """Turns of one conversation by hand."""
    model = kipp.open(path)
    session = kipp.session(model)
    messages, turns = [], []
    for question in json.loads(questions):
        messages.append(("user", question))
        prompt = kipp.chat_prompt(model, messages)
        reused = kipp.sync(session, prompt)
        tokens = kipp.decode(model, session, len(prompt), 60)
        text = kipp.detokenize(model, tokens)
        messages.append(("assistant", text))
        turns.append({"prompt": len(prompt), "reused": reused, "tokens": tokens, "text": text})
    kipp.call("session_close", session)
    kipp.call("model_close", model)
    return turns


def complete(kipp, path, prompt):
    """One text, by hand and through generate, with every sampling parameter in use."""
    model = kipp.open(path)
    session = kipp.session(model)
    bias = (LogitBias * 1)(LogitBias(token=264, bias=-3.0))
    sampling = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.01, repetition_penalty=1.1, presence_penalty=0.25,
                        frequency_penalty=0.125, n_logit_bias=1, logit_bias=bias, seed=7)
    tokens = kipp.tokenize(model, prompt)
    kipp.sync(session, tokens)
    by_hand = kipp.decode(model, session, len(tokens), 40, sampling)

    pieces = []
    seen = TEXT(lambda user, token, text, n: pieces.append((token, text[:n])) or 0)
    generation = kipp.generate(session, tokens, text=seen, max_tokens=40, sampling=ctypes.pointer(sampling))

    in_session = len(kipp.run("session_tokens", c_int32, session))
    # What repeats is proposed, checked, and accepted; the tokens stay the same.
    repeating = kipp.tokenize(model, "One two three four five six seven eight nine ten. " * 8)
    told, drafted = [], {}
    for max_draft in (0, 8):
        told.append([])
        note = TEXT(lambda user, token, text, n: told[-1].append(token) or 0)
        done = kipp.generate(session, repeating, text=note, max_tokens=40, max_draft=max_draft)
        drafted[max_draft] = [done.drafted_tokens, done.accepted_tokens]
    return {"same": told[0] == told[1], "drafted": drafted, "tokens": by_hand, "generated": [token for token, _ in pieces if token >= 0],
            "text": b"".join(text for _, text in pieces).decode(), "finish": generation.finish, "drawn": generation.drawn_tokens,
            "reused": generation.reused_tokens, "in_session": in_session}


def continuations(kipp, path, prompt):
    """Many ways to the same tokens: alone, forked, in one step with others, scored at once, after going back."""
    model = kipp.open(path, kv_blocks=64)
    tokens = kipp.tokenize(model, prompt)
    n = len(tokens)
    alone = kipp.session(model, capacity=128)
    kipp.sync(alone, tokens)
    forked = c_void_p()
    kipp.call("session_fork", alone, byref(forked))
    drawn = kipp.decode(model, alone, n, 12)
    last = kipp.logits(alone)
    seen = {"fork": kipp.decode(model, forked, n, 12) == drawn}

    together = [forked, kipp.session(model, capacity=128), kipp.session(model, capacity=128)]
    kipp.call("session_truncate", forked, c_int32(n))
    prompts = [tokens[:1], tokens, tokens[: n // 2]]
    items = (BatchItem * 3)(*[BatchItem(s.value, ids(p), len(p)) for s, p in zip(together, prompts)])
    kipp.call("batch_append", items, c_size_t(3))
    batched = []
    for _ in range(12):
        batched.append(kipp.sample(together[1], None, n))
        if len(batched) == 12:
            break
        step = ids(batched[-1:])
        items = (BatchItem * 3)(*[BatchItem(s.value, step, 1) for s in together])
        kipp.call("batch_append", items, c_size_t(3))
    seen["batch"] = batched == drawn and kipp.logits(together[1]) == last

    kipp.call("session_truncate", alone, c_int32(n))
    rows = (c_float * (11 * VOCAB_ROWS))()
    kipp.call("session_append_scored", alone, ids(drawn[:11]), c_size_t(11), rows)
    best = [max(range(VOCAB_ROWS), key=rows[i * VOCAB_ROWS:(i + 1) * VOCAB_ROWS].__getitem__) for i in range(11)]
    seen["scored"] = best == drawn[1:] and rows[10 * VOCAB_ROWS:] == last and kipp.logits(alone) == last

    length = c_int32()
    fresh = kipp.session(model, capacity=128)
    kipp.call("session_match", fresh, ids(tokens), c_size_t(n), byref(length))
    seen["match"] = length.value
    seen["pool"] = kipp.pool(model)
    return seen


def save(kipp, path, prompt, file):
    model = kipp.open(path)
    session = kipp.session(model)
    tokens = kipp.tokenize(model, prompt)
    kipp.sync(session, tokens)
    kipp.call("session_save", session, file.encode())
    return {"next": kipp.decode(model, session, len(tokens), 20), "length": len(tokens)}


def load(kipp, path, file, backend):
    model = kipp.open(path, backend=backend.encode())
    session = kipp.session(model)
    if kipp.status("session_load", session, file.encode()) != OK:
        return {"error": kipp.error()}
    tokens = kipp.run("session_tokens", c_int32, session)
    return {"next": kipp.decode(model, session, len(tokens), 20), "length": len(tokens)}


def stop(kipp, path):
    """Callbacks that ask to stop, while a prompt is read and while text comes."""
    loading = []
    model = kipp.open(path, progress=LOADING(lambda user, done, total: loading.append((done, total))), kv_blocks=40)
    session = kipp.session(model, capacity=1200)
    prompt = kipp.tokenize(model, "Once upon a time there was a boat. " * 100)
    seen = []
    progress = PROGRESS(lambda user, done, total: seen.append((done, total)) or done > 0)
    status = kipp.status("session_sync", session, ids(prompt), c_size_t(len(prompt)), progress, None, None)
    out = {"loading": loading[-1], "status": status, "error": kipp.error(), "seen": seen, "total": len(prompt),
           "logits": kipp.status("session_logits", session, byref(POINTER(c_float)())), "resumed": kipp.sync(session, prompt)}
    pieces = []
    text = TEXT(lambda user, token, text, n: pieces.append(text[:n]) or len(pieces) == 3)
    out["finish"] = kipp.generate(session, prompt, text=text, max_tokens=50).finish
    out["pieces"] = len(pieces)
    stops = (c_char_p * 1)(b"a")
    kept = []
    text = TEXT(lambda user, token, text, n: kept.append(text[:n]) or 0)
    out["stopped"] = kipp.generate(session, prompt, text=text, max_tokens=50, stop=stops, n_stop=1).finish
    out["before_stop"] = b"".join(kept).decode()
    return out


def threads(kipp, path):
    """Sessions of one model, each driven by its own thread: calls take turns and nothing mixes."""
    model = kipp.open(path, kv_blocks=64)
    prompts = [kipp.tokenize(model, text) for text in ("Once upon a time", "The cat sat", "One day in May", "Hello!")]

    def told(prompt):
        session = kipp.session(model, capacity=64)
        kipp.sync(session, prompt)
        tokens = kipp.decode(model, session, len(prompt), 15)
        kipp.call("session_close", session)
        return tokens

    alone = [told(prompt) for prompt in prompts]
    together = [None] * len(prompts)

    def work(i):
        together[i] = told(prompts[i])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    kipp.call("model_close", model)
    return alone == together


def adapters(kipp, path, wanted):
    """A model on a GPU that is chosen by name, and what is said of one that is not there."""
    model = kipp.open(path, backend=b"webgpu", adapter=wanted.encode(), kv_blocks=4)
    session = kipp.session(model, capacity=64)
    tokens = kipp.tokenize(model, "Once upon a time")
    kipp.sync(session, tokens)
    told = kipp.decode(model, session, len(tokens), 3)
    options = ModelOptions(backend=b"webgpu", kv_policy=b"bf16", kv_blocks=4, adapter=b"no such GPU")
    status = kipp.status("model_open", path.encode(), byref(options), byref(c_void_p()))
    return {"tokens": told, "status": status, "error": kipp.error()}


SCENARIOS = {f.__name__: f for f in (converse, complete, continuations, save, load, stop, threads, adapters)}

if __name__ == "__main__":
    library, scenario, *arguments = sys.argv[1:]
    if scenario == "misuse":
        from kipp_misuse import misuse
        SCENARIOS["misuse"] = misuse
    print(json.dumps(SCENARIOS[scenario](Kipp(library), *arguments)))
