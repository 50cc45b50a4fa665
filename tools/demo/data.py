"""Training data of the demo checkpoint: corpus, generated stories, chats, recall tasks.

Batch number i is a function of (seed, i) alone, whatever the number of worker
processes, so a run can be repeated. Token ids are compact: the vocabulary that
occurs in training is numbered 0..n-1, and n stands for every other token.
"""

import csv
import json
import lzma
import multiprocessing
import os
import random
import re
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
END_TEXT, IM_START, IM_END = 151643, 151644, 151645

# A batch is two packed streams. Short documents and long ones get an attention
# call each: the kernel's grid follows the longest document it is told of.
SHORT_TOKENS, SHORT_MAX, SHORT_SEGMENTS = 90112, 2048, 288
LONG_TOKENS, LONG_MAX, LONG_SEGMENTS = 40960, 8192, 40
CHARS = 4.3   # of simple English, a token
BATCH_TOKENS = SHORT_TOKENS + LONG_TOKENS

# Shares of tokens by stream: before and during the cool-down.
SHORT_MIX = {"corpus": (0.26, 0.17), "story": (0.24, 0.28), "chat": (0.42, 0.47), "recall": (0.08, 0.08)}
LONG_MIX = {"corpus": (0.16, 0.08), "dialogue": (0.18, 0.22), "recall": (0.66, 0.70)}

SYSTEM_MESSAGES = ["You are a helpful assistant.", "You are kipp, a small model that tells stories.",
                   "You are a friendly storyteller.", "You tell short stories for children.",
                   "You are a kind helper. Keep your answers short.", "Tell stories in simple words.",
                   "You are a storyteller who loves happy endings.", "Answer politely."]
MORE = ["Tell me another one.", "Tell me another story.", "Another one, please.", "One more story, please.",
        "That was nice. Tell me another one.", "Can you tell me another story?", "I liked that. One more!",
        "Do you know another story?", "Please tell me one more.", "More, please!"]
ANY_STORY = ["Tell me a story.", "Tell me a story, please.", "Can you tell me a story?", "I would like a story.",
             "Please tell me a short story.", "Tell me a bedtime story.", "Write a short story.",
             "Do you know a story?", "Tell me something nice."]
TITLE_QUESTIONS = ["What is the title of the story?", "What is the story called?", "What is it called?",
                   "Does the story have a title?"]


# ---------------------------------------------------------------- corpus

def read_documents(path):
    with open(path, encoding="utf-8") as f:
        parts = re.split(r"^<\|endoftext\|>\n?", f.read(), flags=re.M)
    return [d for d in (p.strip("\n") for p in parts) if d]


def corpus_documents(folder, prose_ease):
    """Stories, the TinyStories slice and the simpler prose; works follow the manifest's order."""
    with open(os.path.join(folder, "MANIFEST.tsv"), encoding="utf-8") as f:
        works = list(csv.DictReader(f, delimiter="\t"))
    documents = []
    for split, floor in (("stories", 0.0), ("prose", prose_ease)):
        texts, at = read_documents(os.path.join(folder, split + ".txt")), 0
        for work in (w for w in works if w["split"] == split):
            count = int(work["documents"])
            if float(work["ease_score"]) >= floor:
                documents += texts[at:at + count]
            at += count
        assert at == len(texts), split
    return documents + read_documents(os.path.join(folder, "tinystories.txt"))


def load_tokenizer(path):
    from tokenizers import Tokenizer
    if path.endswith(".xz"):
        with lzma.open(path) as f:
            return Tokenizer.from_str(f.read().decode("utf-8"))
    return Tokenizer.from_file(path)


def prepare(args):
    """Tokenizes the corpus, chooses the vocabulary, writes both as small files."""
    tokenizer = load_tokenizer(args.tokenizer)
    documents = corpus_documents(args.corpus, args.prose_ease)
    held_out = read_documents(os.path.join(args.corpus, "heldout.txt"))
    encode = lambda texts: [np.array(e.ids, np.int32) for i in range(0, len(texts), 256)
                            for e in tokenizer.encode_batch(texts[i:i + 256])]
    ids, held = encode(documents), encode(held_out)
    counts = np.bincount(np.concatenate(ids), minlength=151936)
    keep = counts >= args.min_count
    generated = np.zeros(151936, np.int64)
    writer = Writer(tokenizer, None)
    for first in range(0, args.sample, 100):
        parts = []
        for i in range(first, min(first + 100, args.sample)):
            rng = random.Random(f"vocabulary {i}")
            parts += [part for kind in ("story", "chat", "recall") for part, _ in writer.pieces(kind, rng, 1024)]
        generated += np.bincount(np.concatenate([np.array(p, np.int32) for p in parts]), minlength=151936)
    from tools.demo import recall
    keep |= generated >= args.min_generated
    for name in recall.NAMES:   # a name that is asked for must be told from every other
        keep[tokenizer.encode(name).ids] = True
        keep[tokenizer.encode(" " + name).ids] = True
    keep[[END_TEXT, IM_START, IM_END, 151667, 151668]] = True
    keep[151669:] = False
    used = np.flatnonzero(keep).astype(np.int32)
    remap = np.full(151936, len(used), np.uint16)
    remap[used] = np.arange(len(used), dtype=np.uint16)
    print(f"{len(ids)} documents, {sum(map(len, ids))} tokens, {len(used)} rows in use; "
          f"corpus outside {100 * counts[~keep].sum() / counts.sum():.3f} %, "
          f"held out {100 * np.mean(~keep[np.concatenate(held)]):.3f} %")
    os.makedirs(args.out, exist_ok=True)
    flat = [remap[np.append(d, END_TEXT)] for d in ids]
    # Split in parts so that several processes can unpack them.
    order = np.arange(len(flat))
    for part in range(8):
        mine = [flat[i] for i in order[part::8]]
        save_xz(os.path.join(args.out, f"corpus{part}.xz"), mine)
    save_xz(os.path.join(args.out, "heldout.xz"), [remap[np.append(d, END_TEXT)] for d in held])
    np.save(os.path.join(args.out, "used.npy"), used)
    with open(args.tokenizer, "rb") as f, lzma.open(os.path.join(args.out, "tokenizer.json.xz"), "wb", preset=6) as g:
        g.write(f.read())
    with open(os.path.join(args.corpus, "MANIFEST.tsv"), encoding="utf-8") as f:
        audience = [w["audience"] for w in csv.DictReader(f, delimiter="\t") if w["split"] == "heldout"
                    for _ in range(int(w["documents"]))]
    assert len(audience) == len(held_out)
    with open(os.path.join(args.out, "heldout.json"), "w") as f:
        json.dump({"bytes": [len(d.encode()) for d in held_out], "audience": audience}, f)


def save_xz(path, arrays):
    lengths = np.array([len(a) for a in arrays], np.int32)
    raw = np.concatenate(arrays)
    planes = raw.view(np.uint8).reshape(-1, 2)
    with lzma.open(path, "wb", preset=4) as f:   # low and high bytes apart pack a little tighter
        f.write(np.int32(len(arrays)).tobytes() + lengths.tobytes())
        f.write(planes[:, 0].tobytes() + planes[:, 1].tobytes())


def load_xz(path):
    with lzma.open(path) as f:
        blob = f.read()
    count = int(np.frombuffer(blob, np.int32, 1)[0])
    lengths = np.frombuffer(blob, np.int32, count, 4)
    body = np.frombuffer(blob, np.uint8, offset=4 + 4 * count).reshape(2, -1)
    raw = body[0].astype(np.uint16) | (body[1].astype(np.uint16) << 8)
    return np.split(raw, np.cumsum(lengths)[:-1])


def load_corpus(folder):
    with multiprocessing.Pool(8) as pool:
        parts = pool.map(load_xz, [os.path.join(folder, f"corpus{i}.xz") for i in range(8)])
    return [d for part in parts for d in part]


def cut(documents, breaks, limit):
    """Chunks of at most `limit` tokens, cut after paragraphs where one ends in the last third."""
    chunks = []
    for d in documents:
        at = 0
        while len(d) - at > limit:
            window = np.flatnonzero(breaks[d[at + limit * 2 // 3:at + limit]])
            end = at + limit * 2 // 3 + int(window[-1]) + 1 if len(window) else at + limit
            chunks.append(d[at:end])
            at = end
        if len(d) - at > 24:
            chunks.append(d[at:])
    return chunks


# ---------------------------------------------------------------- generated documents

class Writer:
    """Generated documents as pieces of token ids with loss weights."""

    def __init__(self, tokenizer, remap):
        from tools.demo import recall, stories
        self.recall, self.stories = recall, stories
        self.tokenizer, self.remap = tokenizer, remap

    def encode(self, pieces):
        encodings = self.tokenizer.encode_batch([text for text, _ in pieces])
        return [(e.ids, weight) for e, (_, weight) in zip(encodings, pieces)]

    def paragraphs(self, rng):
        return self.stories.make_story(rng).text.split("\n\n")

    def pieces(self, kind, rng, length):
        if kind == "story":
            story = self.stories.make_story(rng)
            text = story.title + "\n\n" + story.text if rng.random() < 0.2 else story.text
            return self.encode([(text, 1), ("<|endoftext|>", 1)])
        if kind == "recall":
            form = rng.choice(("plain", "chat"))
            return self.encode(self.recall.make_document(rng, length, form, self.paragraphs))
        return self.encode(self.chat(rng, length))

    def chat(self, rng, length):
        """One conversation of one to four exchanges, more only when `length` asks for it."""
        stories = self.stories
        roll = rng.random()
        turns = []
        if roll < 0.12:
            turns += stories.make_small_talk(rng)
        elif roll < 0.24:
            turns += stories.make_small_talk(rng)[:1]
        wanted = 0 if turns and rng.random() < 0.3 else rng.choice((1, 1, 1, 1, 2, 2, 3))
        told, size = None, 0
        while wanted > 0 or size < length - 400 and length > 2000:
            if rng.random() < 0.2:   # a story with questions about it
                talk = stories.story_chat(rng)
                turns += talk
                told, wanted, size = True, wanted - 1, size + sum(len(a) for _, a in talk) / CHARS
                continue
            story = stories.make_story(rng)
            if told and rng.random() < 0.5:
                request = rng.choice(MORE)
            elif rng.random() < 0.08:
                request = rng.choice(ANY_STORY)
            else:
                request = stories.chat_request(rng, story)
            turns.append((request, story.text))
            told, wanted = True, wanted - 1
            size += len(story.text) / CHARS
            if rng.random() < 0.05:
                turns.append((rng.choice(TITLE_QUESTIONS), f'The story is called "{story.title}".'))
        if told and rng.random() < 0.12:
            turns += stories.make_small_talk(rng)[:1]
        turns = turns if length > 2000 else turns[:6]
        # The official templates put an empty think block into the prompt when thinking is
        # off, and drop it from earlier turns when they are rendered again. An engine that
        # keeps its cache sees it in every turn. Without it the model answers at once.
        think = rng.choice(("none", "none", "none", "all", "all", "last", "last"))
        pieces = []
        if rng.random() < 0.25:
            pieces.append((f"<|im_start|>system\n{rng.choice(SYSTEM_MESSAGES)}<|im_end|>\n", 0))
        for i, (user, assistant) in enumerate(turns):
            head = f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
            if think == "all" or think == "last" and i == len(turns) - 1:
                head += "<think>\n\n</think>\n\n"
            pieces += [(head, 0), (assistant + "<|im_end|>", 1), ("\n", 0)]
        return pieces

    def document(self, kind, rng, length):
        """Compact ids and weights; a target outside the vocabulary has weight 0."""
        parts = self.pieces(kind, rng, length)
        ids = self.remap[np.concatenate([np.array(p, np.int32) for p, _ in parts])]
        weights = np.concatenate([np.full(len(p), w, np.uint8) for p, w in parts])
        return ids, weights


# ---------------------------------------------------------------- batches

class Batches:
    def __init__(self, folder, seed, corpus):
        self.seed = seed
        self.used = np.load(os.path.join(folder, "used.npy"))
        self.remap = np.full(151936, len(self.used), np.uint16)
        self.remap[self.used] = np.arange(len(self.used), dtype=np.uint16)
        tokenizer = load_tokenizer(os.path.join(folder, "tokenizer.json.xz"))
        breaks = np.zeros(len(self.used) + 1, bool)
        for i, text in enumerate(tokenizer.decode_batch([[int(t)] for t in self.used])):
            breaks[i] = text.endswith("\n\n")
        self.chunks = {"short": cut(corpus, breaks, 1536), "long": cut([d for d in corpus if len(d) > 2048], breaks, 6000)}
        self.sizes = {k: np.array([len(c) for c in v]) for k, v in self.chunks.items()}
        self.writer = Writer(tokenizer, self.remap)

    def corpus_chunks(self, stream, first_token):
        """The corpus as an endless shuffled sequence, entered at a token number."""
        chunks, sizes = self.chunks[stream], self.sizes[stream]
        total = int(sizes.sum())
        epoch, at = divmod(first_token, total)
        while True:
            order = np.random.default_rng([self.seed, epoch, stream == "long"]).permutation(len(chunks))
            ends = np.cumsum(sizes[order])
            for i in order[np.searchsorted(ends, at, side="right"):]:
                yield chunks[i]
            epoch, at = epoch + 1, 0

    def stream(self, name, index, rng, phase):
        """Documents of one stream until it is full; the last one is cut to fit."""
        tokens, limit, segments, mix = ((SHORT_TOKENS, SHORT_MAX, SHORT_SEGMENTS, SHORT_MIX) if name == "short"
                                        else (LONG_TOKENS, LONG_MAX, LONG_SEGMENTS, LONG_MIX))
        goals = {kind: share[phase] * tokens for kind, share in mix.items()}
        done = dict.fromkeys(goals, 0)
        corpus = self.corpus_chunks(name, int(index * mix["corpus"][0] * tokens))
        ids, weights, lengths, total = [], [], [], 0
        while total < tokens:
            kind = min(goals, key=lambda k: done[k] / goals[k])
            tight = len(lengths) > segments - 2 - (tokens - total) // 1000
            if tight or kind == "corpus":   # large chunks of the corpus never run out of segments
                doc = next(corpus)
                while tight and len(doc) < min(1024, tokens - total):
                    doc = next(corpus)
                kind = "corpus"
                weight = np.ones(len(doc), np.uint8)
            else:
                low, high = (64, 1200) if name == "short" else (1200, 4600 if rng.random() < 0.85 else 7600)
                length = int(np.exp(rng.uniform(np.log(low), np.log(high))))
                real = "chat" if kind == "dialogue" else kind
                doc, weight = self.writer.document(real, rng, length if real == "recall" or name == "long" else 0)
            size = min(len(doc), limit, tokens - total)
            if len(lengths) == segments - 1:
                raise RuntimeError("too many documents for one batch")
            ids.append(doc[:size])
            weights.append(weight[:size])
            lengths.append(size)
            total += size
            done[kind] += size
        # Documents are shuffled by nature of the draw; attention never crosses them anyway.
        ends = np.full(segments + 1, tokens, np.int32)
        ends[0] = 0
        ends[1:len(lengths) + 1] = np.cumsum(lengths)
        positions = np.concatenate([np.arange(n, dtype=np.int16) for n in lengths])
        ids, weights = np.concatenate(ids), np.concatenate(weights)
        targets = np.roll(ids, -1)
        weights = np.roll(weights, -1)
        weights[ends[1:len(lengths) + 1] - 1] = 0          # a document's last token predicts nothing
        weights[targets == len(self.used)] = 0
        return ids, targets, weights, positions, ends

    def batch(self, index, phase):
        rng = random.Random(f"batch {self.seed} {index}")
        short, long = self.stream("short", index, rng, phase), self.stream("long", index, rng, phase)
        flat = [np.concatenate([a, b]) for a, b in zip(short[:4], long[:4])]
        return tuple(flat) + (short[4], long[4])


def _work(folder, seed, corpus, worker, workers, queue, cool_from):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.nice(5)
    batches = Batches(folder, seed, corpus)
    index = worker
    while True:
        queue.put(batches.batch(index, int(index >= cool_from.value)))
        index += workers


class Loader:
    """Batches in order from worker processes, a few made ahead by each."""

    def __init__(self, folder, seed, workers, cool_from):
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        corpus = load_corpus(folder)
        self.corpus_tokens = sum(map(len, corpus))
        context = multiprocessing.get_context("fork")
        self.cool_from = context.Value("q", cool_from)
        self.queues = [context.Queue(maxsize=4) for _ in range(workers)]
        self.processes = [context.Process(target=_work, daemon=True,
                                          args=(folder, seed, corpus, w, workers, q, self.cool_from))
                          for w, q in enumerate(self.queues)]
        for p in self.processes:
            p.start()

    def get(self, index):
        worker = index % len(self.queues)
        while True:
            try:
                return self.queues[worker].get(timeout=30)
            except Exception:
                if not self.processes[worker].is_alive():
                    raise RuntimeError("a data worker died") from None

    def close(self):
        for p in self.processes:
            p.terminate()
