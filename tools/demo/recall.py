"""Recall tasks: facts planted in a context, asked for later.

Training documents interleave facts, filler and questions, so that every
document asks at many distances. Test sets hold one question each, at a stated
distance in tokens, and depend on the seed alone:

    python3 tools/demo/recall.py --seed 7 --distance 1024 --count 50 > recall_1024.jsonl
"""

import argparse
import json
import math
import os
import random
import re
import sys

NAMES = """Abel Ada Adele Agnes Alba Alec Alice Alma Amos Andrew Angela Anna Anton Arthur Astrid Aubrey Barbara
Basil Beatrice Bella Bernard Bertha Betty Blanche Boris Bridget Bruno Carl Carmen Caspar Cecil Celia Charles Chloe
Clara Claude Clement Colin Conrad Cora Cyril Daisy Daniel Daphne David Delia Denis Diana Dora Doris Dorothy Edgar
Edith Edmund Edward Edwin Eleanor Eliza Ella Ellen Elmer Elsa Emil Emily Emma Eric Ernest Esther Ethel Eugene Eva
Felix Fergus Flora Florence Frances Frank Freda George Gerald Gertrude Gilbert Gladys Gloria Grace Greta Grover
Gustav Hannah Harold Harriet Harry Hazel Hector Helen Henry Herbert Hilda Homer Horace Hubert Hugo Ida Irene Iris
Isaac Ivan Ivy Jack Jacob James Jane Jasper Jennie Jerome Jessie Joan Joel Johanna John Jonas Joseph Josephine
Judith Julia Julius June Karen Karl Katherine Klaus Lars Laura Lawrence Leah Leo Leonard Lily Linda Lois Louis
Louise Lucas Lucy Luther Lydia Mabel Magnus Margaret Maria Marian Marion Mark Martha Martin Mary Matilda Maud
Maurice Max May Mercy Michael Mildred Minnie Mira Miriam Molly Morris Myra Myrtle Nancy Naomi Nathan Nell Nora
Norman Olga Olive Oliver Oscar Otto Owen Patrick Paul Pauline Pearl Peter Philip Phoebe Polly Quentin Rachel Ralph
Raymond Rebecca Reuben Rhoda Richard Robert Robin Roger Roland Rosa Rose Rowena Rufus Rupert Ruth Sally Samuel
Sarah Selma Silas Simon Sonia Sophie Stella Stephen Susan Sybil Sylvia Thea Theodore Thomas Timothy Tobias Ursula
Vera Victor Vincent Viola Violet Virgil Walter Wanda Wilfred William Winifred Yvonne Zelda""".split()

ONSETS = "b br d dr f fl g gr h j k kl l m n p pr r s st t tr v w z".split()
VOWELS = "a e i o u".split()
CODAS = "l n r s m k t".split()

FACTS = ["The number of {n} is {d}.", "The number of {n} is {d}.", "The number of {n} is {d}.",
         "{n}'s number is {d}.", "{n} has the number {d}."]
QUESTIONS = ["What is the number of {n}?", "What is the number of {n}?", "What is the number of {n}?",
             "What is {n}'s number?", "Which number does {n} have?"]
OPENINGS = ["Here is a list of numbers.", "Remember these numbers.", "Read this list with care.",
            "Please remember every number.", "I will tell you some numbers and some other things."]

ANSWER_WEIGHT = 4   # an answer is a handful of tokens in a long context
FILLER_WEIGHT = 1
CHARS_PER_TOKEN = 4.2
SENTENCE_END = re.compile(r'(?<=[.!?"]) (?=[A-Z"])')


def made_up_name(rng):
    """Two or three syllables: several tokens, so that copying cannot lean on known names."""
    parts = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.choice((2, 2, 3)))]
    return ("".join(parts) + (rng.choice(CODAS) if rng.random() < 0.5 else "")).capitalize()


class NamePool:
    """Names that do not repeat within one context."""

    def __init__(self, rng, invented=0.25):
        self.rng, self.invented = rng, invented
        self.known = rng.sample(NAMES, len(NAMES))
        self.used = set()

    def take(self):
        if self.known and self.rng.random() >= self.invented:
            return self.known.pop()
        while True:
            name = made_up_name(self.rng)
            if name not in self.used:
                self.used.add(name)
                return name


def number(rng):
    digits = rng.choice((3, 4, 4, 5))
    return str(rng.randrange(10 ** (digits - 1), 10 ** digits))


def tokens_of(text):
    """A cheap estimate; only evaluation needs exact counts. Digits are a token each."""
    digits = sum(c.isdigit() for c in text)
    return (len(text) - digits) / CHARS_PER_TOKEN + digits


def pick_fact(rng, facts, here):
    """The fact whose distance is nearest to a log-uniform draw.

    Asking mentions the number again, so the distance counts from the last mention.
    """
    want = math.exp(rng.uniform(math.log(12), math.log(max(13.0, here))))
    fact = min(facts, key=lambda f: abs(here - f[2] - want))
    fact[2] = here
    return fact


def make_document(rng, length, form, filler):
    """Pieces [(text, weight)] of about `length` tokens. `filler(rng)` returns a list of paragraphs."""
    names, facts, pieces = NamePool(rng), [], []
    here = 0.0
    prose_share = rng.choice((0.0, 0.1, 0.3, 0.6, 0.85))   # of the tokens
    question_rate = rng.uniform(0.2, 0.5)
    paragraphs, told = [], 0.0
    chat = form == "chat"

    def put(text, weight):
        nonlocal here
        pieces.append((text, weight))
        here += tokens_of(text)

    def fact(end):
        name, digits = names.take(), number(rng)
        put(rng.choice(FACTS).format(n=name, d=digits) + end, 0)
        facts.append([name, digits, here])

    def prose(end):
        nonlocal paragraphs, told
        if not paragraphs:
            paragraphs = [line for p in filler(rng)
                          for line in (SENTENCE_END.split(p) if rng.random() < 0.5 else [p])]
        told -= here
        put(paragraphs.pop(0) + end, FILLER_WEIGHT)
        told += here

    if chat:
        opened = False
        while here < length or not opened:
            put("<|im_start|>user\n", 0)
            if not opened:
                put(rng.choice(OPENINGS) + "\n", 0)
            # A turn plants some facts (always at first), then asks.
            stretch = here + (math.exp(rng.uniform(math.log(24), math.log(max(25.0, length)))) if not opened
                              else rng.choice((0, 0, 0, 0, 0, rng.uniform(20, 300))))
            while here < stretch or not facts:
                if facts and told < prose_share * here:
                    prose("\n")
                else:
                    fact("\n")
            opened = True
            name, digits, _ = pick_fact(rng, facts, here)
            put(rng.choice(QUESTIONS).format(n=name) + "<|im_end|>\n", 0)
            put("<|im_start|>assistant\n", 0)
            if rng.random() < 0.3:
                put("<think>\n\n</think>\n\n", 0)
            put(digits + "<|im_end|>", ANSWER_WEIGHT)
            put("\n", 0)
        return pieces
    if rng.random() < 0.4:
        put(rng.choice(OPENINGS) + "\n", 0)
    while here < length:
        roll = rng.random()
        if facts and roll < question_rate:
            name, digits, _ = pick_fact(rng, facts, here)
            put("Question: " + rng.choice(QUESTIONS).format(n=name) + "\nAnswer:", 0)
            put(" " + digits + "\n", ANSWER_WEIGHT)
        elif facts and told < prose_share * here:
            prose("\n")
        else:
            fact("\n")
    for _ in range(rng.randrange(2, 9)):
        name, digits, _ = pick_fact(rng, facts, here)
        put("Question: " + rng.choice(QUESTIONS).format(n=name) + "\nAnswer:", 0)
        put(" " + digits + "\n", ANSWER_WEIGHT)
    put("<|endoftext|>", 1)
    return pieces


def make_test(rng, distance, form, kind, filler, count_tokens):
    """One question whose fact lies `distance` tokens back (exact up to the length of one filler line)."""
    names = NamePool(rng)
    plant = lambda: (names.take(), number(rng))
    line = lambda name, digits: f"The number of {name} is {digits}.\n"
    before = [line(*plant()) for _ in range(rng.randrange(0, 6))]
    name, digits = plant()
    question = f"What is the number of {name}?"
    tail = f"{question}<|im_end|>\n<|im_start|>assistant\n" if form == "chat" else f"Question: {question}\nAnswer:"
    between, paragraphs = [], []
    # Tokens from the fact's last digit to the answer's first: a full stop, the filler and the tail.
    room = distance - count_tokens(tail) - 2
    while True:
        if kind == "list" or rng.random() < 0.1:
            text = line(*plant())
        else:
            if not paragraphs:
                paragraphs = filler(rng)
            text = paragraphs.pop(0) + "\n"
        size = count_tokens(text)
        if size > room:
            if kind != "list" and room > 16:
                text = line(*plant())
                size = count_tokens(text)
                if size <= room:
                    between.append(text)
                    room -= size
                    continue
            break
        between.append(text)
        room -= size
    head = "<|im_start|>user\nHere is a list of numbers.\n" if form == "chat" else "Here is a list of numbers.\n"
    prompt = head + "".join(before) + line(name, digits) + "".join(between) + tail
    exact = count_tokens(prompt) - count_tokens(head + "".join(before) + line(name, digits)[:-2]) + 1
    return {"prompt": prompt, "answer": digits, "distance": exact, "form": form, "kind": kind, "name": name}


def make_tests(seed, distance, count, filler, count_tokens):
    """Tests alternate between plain and chat, list and story filler."""
    tests = []
    for i in range(count):
        rng = random.Random(f"recall {seed} {distance} {i}")
        form = ("plain", "chat")[i % 2]
        kind = ("list", "story")[(i // 2) % 2]
        tests.append(make_test(rng, distance, form, kind, filler, count_tokens))
    return tests


def story_filler(rng):
    from tools.demo.stories import make_story
    return make_story(rng).text.split("\n\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--distance", type=int, action="append", help="tokens; may be given several times")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--tokenizer", required=True, help="the instruct tokenizer.json")
    args = parser.parse_args()
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(args.tokenizer)
    count_tokens = lambda text: len(tokenizer.encode(text).ids)
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    for distance in args.distance or [64, 256, 1024, 4096]:
        for test in make_tests(args.seed, distance, args.count, story_filler, count_tokens):
            print(json.dumps(test))


if __name__ == "__main__":
    main()
