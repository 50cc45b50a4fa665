"""Every way to hold libkipp.so wrong that we could think of: what each call answers, as {case: [status, sentence]}."""
import ctypes
from ctypes import byref, c_char_p, c_float, c_int32, c_size_t, c_void_p

from kipp_ctypes import (PROGRESS, VOCAB_ROWS, BatchItem, ChatOptions, GenerateOptions, Generation, LogitBias, Message, ModelInfo,
                         ModelOptions, PoolStats, Sampling, SessionOptions, ids)


def misuse(kipp, path):
    seen = {}

    def case(name, *call):
        status = kipp.status(*call)
        seen[name] = [status, kipp.error() if status else ""]

    def opening(**members):
        options = ModelOptions(**{"backend": b"cpu", "kv_policy": b"bf16", "kv_blocks": 8} | members)
        return ("model_open", path.encode(), byref(options), byref(c_void_p()))

    out, n, number = c_void_p(), c_size_t(), c_int32()
    case("open without a path", "model_open", None, byref(ModelOptions(backend=b"cpu", kv_policy=b"bf16")), byref(out))
    case("open without options", "model_open", path.encode(), None, byref(out))
    case("open to nowhere", "model_open", path.encode(), byref(ModelOptions(backend=b"cpu", kv_policy=b"bf16")), None)
    case("open what is not there", "model_open", b"/nowhere.gguf", byref(ModelOptions(backend=b"cpu", kv_policy=b"bf16")), byref(out))
    case("open what is no model", "model_open", __file__.encode(), byref(ModelOptions(backend=b"cpu", kv_policy=b"bf16")), byref(out))
    case("no backend", *opening(backend=None))
    case("unknown backend", *opening(backend=b"gpu"))
    case("an adapter of a backend without any", *opening(adapter=b"0"))
    case("no policy", *opening(kv_policy=None))
    case("unknown policy", *opening(kv_policy=b"fast"))
    case("a policy that is not proven", *opening(kv_policy=b"far=int4"))
    case("unknown weights", *opening(weights=b"folded"))
    case("negative threads", *opening(threads=-1))
    case("negative blocks", *opening(kv_blocks=-1))
    case("a cache beyond all memory", *opening(kv_blocks=2**31 - 1))
    case("size not set", *opening(size=0))
    first = ModelOptions.kv_sequences.offset  # what the first version measured
    case("size too small", *opening(size=first - 8))
    case("an older caller", *opening(size=first))
    case("size absurd", *opening(size=2**63))

    class Longer(ctypes.Structure):
        _fields_ = [("known", ModelOptions), ("unknown", c_size_t)]

    longer = Longer(known=ModelOptions(backend=b"cpu", kv_policy=b"bf16", kv_blocks=8), unknown=1)
    longer.known.size = ctypes.sizeof(Longer)
    case("a newer member in use", "model_open", path.encode(), byref(longer), byref(out))
    longer.unknown = 0
    case("a newer member not in use", "model_open", path.encode(), byref(longer), byref(out))
    kipp.call("model_close", out)

    model = kipp.open(path, kv_blocks=8)
    other = kipp.open(path, kv_blocks=8)
    session = kipp.session(model, capacity=64)
    foreign = kipp.session(other, capacity=64)
    hello = kipp.tokenize(model, "Hello!")
    some = (ids(hello), c_size_t(len(hello)))

    case("info of NULL", "model_info_of", None, byref(ModelInfo()))
    case("info to nowhere", "model_info_of", model, None)
    case("info without a size", "model_info_of", model, byref(PoolStats(size=0)))
    case("stats of a session", "model_pool_stats", session, byref(PoolStats()))
    case("a model as a session", "session_append", model, c_int32(1))
    case("a stray pointer", "session_append", c_void_p(0xDEAD0), c_int32(1))
    case("text is NULL", "tokenize", model, None, c_size_t(5), c_int32(0), None, c_size_t(0), byref(n))
    case("no text", "tokenize", model, None, c_size_t(0), c_int32(0), None, c_size_t(0), byref(n))
    case("no count", "tokenize", model, b"x", c_size_t(1), c_int32(0), None, c_size_t(0), None)
    case("no buffer", "tokenize", model, b"x", c_size_t(1), c_int32(0), None, c_size_t(4), byref(n))
    buffer = ids([-7])
    case("a small buffer", "tokenize", model, b"Once upon a time", c_size_t(16), c_int32(0), buffer, c_size_t(1), byref(n))
    seen["a small buffer"] += [n.value, buffer[0]]
    case("detokenize no token", "detokenize", model, ids([151669]), c_size_t(1), c_int32(0), None, c_size_t(0), byref(n))
    case("detokenize a negative one", "detokenize", model, ids([-1]), c_size_t(1), c_int32(0), None, c_size_t(0), byref(n))

    def chat(*messages, **options):
        array = (Message * max(1, len(messages)))(*messages)
        return ("chat_prompt", model, array, c_size_t(len(messages)), byref(ChatOptions(**options)), None, c_size_t(0), byref(n))

    user = Message(role=b"user", content=b"hi")
    case("no messages", *chat())
    case("no role", *chat(Message(content=b"hi")))
    case("an unknown role", *chat(Message(role=b"judge", content=b"hi")))
    case("tools that are no JSON", *chat(user, tools=b"[{"))
    case("tools that are no list", *chat(user, tools=b"{}"))
    case("tools too deep", *chat(user, tools=b"[" * 100_000 + b"]" * 100_000))
    case("calls that are no list", *chat(user, Message(role=b"assistant", tool_calls=b"7")))

    case("capacity negative", "session_open", model, byref(SessionOptions(capacity=-1)), byref(out))
    case("capacity beyond the context", "session_open", model, byref(SessionOptions(capacity=1 << 20)), byref(out))
    case("capacity beyond the pool", "session_open", model, byref(SessionOptions(capacity=300)), byref(out))
    case("session to nowhere", "session_open", model, None, None)

    row = c_void_p()
    case("logits of nothing", "session_logits", session, byref(row))
    case("sample of nothing", "session_sample", session, None, c_int32(0), byref(number))
    case("sync nothing", "session_sync", session, None, c_size_t(0), None, None, None)
    case("sync NULL", "session_sync", session, None, c_size_t(3), None, None, None)
    case("sync too much", "session_sync", session, ids([1] * 65), c_size_t(65), None, None, None)
    case("sync absurdly much", "session_sync", session, ids([1]), c_size_t(2**63), None, None, None)
    case("sync no token", "session_sync", session, ids([1, 151669]), c_size_t(2), None, None, None)
    case("match no token", "session_match", session, ids([-1]), c_size_t(1), byref(number))
    kipp.sync(session, hello)
    length = len(hello)
    case("append no token", "session_append", session, c_int32(151936))
    case("score nothing", "session_append_scored", session, None, c_size_t(0), (c_float * 1)())
    case("score to nowhere", "session_append_scored", session, *some, None)
    case("truncate below", "session_truncate", session, c_int32(-1))
    case("truncate beyond", "session_truncate", session, c_int32(length + 1))
    case("sample behind the end", "session_sample", session, None, c_int32(length + 1), byref(number))
    case("sample before the start", "session_sample", session, None, c_int32(-1), byref(number))
    case("sample to nowhere", "session_sample", session, None, c_int32(0), None)
    for field, value in (("temperature", -1.0), ("temperature", float("nan")), ("top_k", -1), ("top_p", 1.5), ("top_p", -0.5), ("min_p", 2.0),
                         ("repetition_penalty", -1.0), ("presence_penalty", 3.0), ("frequency_penalty", -3.0), ("n_logit_bias", -1),
                         ("n_logit_bias", 1)):
        case(f"{field} {value}", "session_sample", session, byref(Sampling(**{field: value})), c_int32(0), byref(number))
    bias = (LogitBias * 2)(LogitBias(5, 1), LogitBias(5, 2))
    case("a token biased twice", "session_sample", session, byref(Sampling(logit_bias=bias, n_logit_bias=2)), c_int32(0), byref(number))
    case("save to nowhere", "session_save", session, None)
    case("save into a file", "session_save", session, (__file__ + "/saved").encode())
    case("load from nowhere", "session_load", session, None)
    case("load what is not there", "session_load", session, b"/nowhere.session")
    case("load what is no session", "session_load", session, __file__.encode())

    def batch(*items):
        array = (BatchItem * max(1, len(items)))(*[BatchItem(s and s.value, *some) for s in items])
        return ("batch_append", array, c_size_t(len(items)))

    case("a batch of nothing", *batch())
    case("a batch of NULL", "batch_append", None, c_size_t(2))
    case("a batch with NULL in it", *batch(session, None))
    case("a batch of one twice", *batch(session, session))
    case("a batch of two models", *batch(session, foreign))

    def generating(**members):
        return ("session_generate", session, *some, byref(GenerateOptions(**members)), byref(Generation()))

    stops = (c_char_p * 5)(b"a", b"b", b"c", b"d", b"e")
    case("generate without options", "session_generate", session, *some, None, None)
    case("generate less than nothing", *generating(max_tokens=-1))
    case("a draft of less than nothing", *generating(max_draft=-1))
    case("a draft too long", *generating(max_draft=65))
    case("too many stops", *generating(stop=stops, n_stop=5))
    case("an empty stop", *generating(stop=(c_char_p * 1)(b""), n_stop=1))
    case("a stop that is NULL", *generating(stop=(c_char_p * 1)(None), n_stop=1))

    inside = []

    def meddle(user, done, total):
        for name, call in {"append": ("session_append", session, c_int32(1)), "close": ("model_close", model),
                           "open": ("session_open", model, None, byref(c_void_p())), "fork": ("session_fork", session, byref(c_void_p())),
                           "other": ("session_append", foreign, c_int32(1))}.items():
            status = kipp.status(*call)
            inside.append([name, status, kipp.error() if status else ""])
        inside.append(["tokenize", kipp.status("tokenize", model, b"x", c_size_t(1), c_int32(0), None, c_size_t(0), byref(n)), ""])
        return 1

    case("meddling callback", "session_sync", session, ids(hello + hello), c_size_t(2 * length), PROGRESS(meddle), None, None)
    seen["from within"] = inside
    seen["length after all that"] = len(kipp.run("session_tokens", c_int32, session))
    rows = (c_float * (length * VOCAB_ROWS))()
    kipp.call("session_append_scored", session, *some, rows)

    case("close with sessions", "model_close", model)
    closed = c_void_p(session.value)
    kipp.call("session_close", session)
    case("close twice", "session_close", closed)
    for name, call in {"append": (c_int32(1),), "truncate": (c_int32(0),), "save": (b"/nowhere",), "load": (b"/nowhere",),
                       "logits": (byref(row),), "fork": (byref(out),), "sync": (*some, None, None, None),
                       "tokens": (None, c_size_t(0), byref(n)), "match": (*some, byref(number)), "append_scored": (*some, rows),
                       "sample": (None, c_int32(0), byref(number)),
                       "generate": (*some, byref(GenerateOptions()), None)}.items():
        case(f"{name} of a closed session", "session_" + name, closed, *call)
    case("a batch with a closed session", *batch(closed))
    fresh = kipp.session(model, capacity=64)
    seen["a handle is never given twice"] = fresh.value != closed.value
    kipp.call("session_close", fresh)
    case("close at last", "model_close", model)
    case("close a closed model", "model_close", model)
    case("info of a closed model", "model_info_of", model, byref(ModelInfo()))
    case("tokenize with a closed model", "tokenize", model, b"x", c_size_t(1), c_int32(0), None, c_size_t(0), byref(n))
    case("session of a closed model", "session_open", model, None, byref(out))
    return seen
