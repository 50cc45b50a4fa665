"""Strings that tokenizers get wrong: deterministic, and heavy on the corners of Unicode."""

import random

SPACES = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
LOOK_LIKE_SPACES = "\u180e\u200b\u200c\u200d\u2060\ufeff\u00ad\u001c\u001f\u0000"
SURROGATE_NEIGHBOURS = "\ud7fb\ud7ff\ue000\ue001\uffff\ufffd\U0010ffff\U00010000"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
ZEROS_OF_SCRIPTS = "0\u0660\u06f0\u0966\u0e50\uff10\U0001d7ce\U000104a0\U000116d0\U0001e5f1"
EMOJI = ["\U0001F468\u200d\U0001F469\u200d\U0001F467", "\u2764\ufe0f", "\U0001F1E9\U0001F1EA", "1\ufe0f\u20e3",
         "\U0001F44B\U0001F3FD", "\U0001F3F4\U000E0067\U000E007F"]
CONTRACTIONS = ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "Re", "rE", "VE", "M", "lL", "LL", "D", "\u017f",
                "sh", "tt", "r", "l", "v", "\u212a", "\ufb05"]
WORDS = ("the quick Brown fox naïve Straße I'm don't x_y camelCase HTTPServer 3.14159 0x1F -> != == // /* \\n "
         "https://example.org/a?b=c&d=%20 def __init__(self): return {\"key\": [1, 2, 3]};\tint main() "
         "中文分词 日本語テキスト 한국어 русский עברית العربية हिन्दी ไทย ελληνικά Việt").split(" ")

# Each range is drawn from as often as any other, so that the small ones are not drowned.
RANGES = [
    (0x00, 0x7F), (0x80, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
    (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x8FF), (0x900, 0x97F), (0x980, 0xDFF), (0xE00, 0xEFF), (0xF00, 0xFFF),
    (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x13FF), (0x1680, 0x17FF), (0x1800, 0x18AF),
    (0x1900, 0x1BFF), (0x1C00, 0x1CFF), (0x1D00, 0x1DFF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F),
    (0x2070, 0x209F), (0x20D0, 0x20FF), (0x2100, 0x214F), (0x2150, 0x218F), (0x2190, 0x23FF), (0x2460, 0x24FF),
    (0x2500, 0x27BF), (0x2E80, 0x2FFF), (0x3000, 0x303F), (0x3040, 0x30FF), (0x3100, 0x318F), (0x3200, 0x33FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA4D0, 0xA7FF), (0xA800, 0xABFF), (0xAC00, 0xD7A3),
    (0xD7B0, 0xD7FF), (0xE000, 0xE100), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0xFB50, 0xFDFF), (0xFE00, 0xFE2F),
    (0xFE30, 0xFFEF), (0xFFF0, 0xFFFF), (0x10000, 0x102FF), (0x10300, 0x10FFF), (0x11000, 0x11FFF),
    (0x12000, 0x1343F), (0x13440, 0x143FF), (0x16100, 0x18FFF), (0x1BC00, 0x1CFFF), (0x1D100, 0x1D1FF),
    (0x1D200, 0x1D3FF), (0x1D400, 0x1D7FF), (0x1E000, 0x1E5FF), (0x1E800, 0x1EFFF), (0x1F000, 0x1FAFF),
    (0x1FB00, 0x1FFFF), (0x20000, 0x2A6DF), (0x2EBF0, 0x2EE5D), (0x2F800, 0x2FA1F), (0x30000, 0x3134F),
    (0xE0000, 0xE01EF), (0x10FFF0, 0x10FFFF),
]
MARKS = [
    (0x300, 0x36F), (0x300, 0x36F), (0x300, 0x36F), (0x591, 0x5BD), (0x64B, 0x65F), (0x898, 0x8D3), (0x93C, 0x94D),
    (0xC3C, 0xC4D), (0xE31, 0xE4E), (0x1AB0, 0x1ACE), (0x1DC0, 0x1DFF), (0x20D0, 0x20F0), (0x3099, 0x309A),
    (0xFE20, 0xFE2F), (0x110B9, 0x110BA), (0x11930, 0x11943), (0x1D165, 0x1D172), (0x1E130, 0x1E136),
]


class NastyText:
    def __init__(self, seed, added_tokens):
        self.rng = random.Random(seed)
        self.added_tokens = added_tokens
        self.parts = [
            self.character, self.character, self.marked, self.mark, self.jamo, self.added, self.added,
            lambda: self.several(SPACES, 5),
            lambda: self.rng.choice(" \n\r\t") * self.rng.randint(1, 4),
            lambda: self.rng.choice(LOOK_LIKE_SPACES),
            lambda: "".join(chr(ord(self.rng.choice(ZEROS_OF_SCRIPTS)) + self.rng.randrange(10)) for _ in range(3)),
            lambda: self.rng.choice("'\u2019'") + self.rng.choice(CONTRACTIONS),
            lambda: self.rng.choice(EMOJI),
            lambda: self.rng.choice(SURROGATE_NEIGHBOURS),
            lambda: self.rng.choice(WORDS),
            lambda: " " + self.rng.choice(WORDS),
            lambda: self.several("abcdefghijklmnopqrstuvwxyz", 12),
            lambda: self.several(PUNCTUATION, 5),
        ]

    def several(self, alphabet, most):
        return "".join(self.rng.choice(alphabet) for _ in range(self.rng.randint(1, most)))

    def character(self):
        return chr(self.rng.randint(*self.rng.choice(RANGES)))

    def mark(self):
        return chr(self.rng.randint(*self.rng.choice(MARKS)))

    def marked(self):
        return self.rng.choice("aeonAEOK\u00e9\u1e69\u0f71\u0cc6\u0dd9") + "".join(
            self.mark() for _ in range(self.rng.randint(1, 4)))

    def jamo(self):
        leading, vowel, final = (chr(self.rng.choice(r)) for r in (
            (0x1100, 0x1112, 0x1113), (0x1161, 0x1175, 0x1176), (0x11A7, 0x11A8, 0x11C2, 0x11C3)))
        syllable = chr(0xAC00 + self.rng.randrange(11172))
        return self.rng.choice([leading + vowel, leading + vowel + final, syllable + final, syllable + vowel,
                                vowel + final, leading + self.mark() + vowel])

    def added(self):
        """An added token: whole, cut, glued to others or wrapped in combining marks."""
        token, other = self.rng.choice(self.added_tokens), self.rng.choice(self.added_tokens)
        cut = self.rng.randrange(1, len(token))
        return self.rng.choice([token, token + other, token[:cut], token[cut:], token[:cut] + other + token[cut:],
                                token[:cut] + " " + token[cut:], self.mark() + token + self.mark(), token.upper(),
                                "<" + token])

    def string(self):
        if self.rng.randrange(400) == 0:  # now and then a long run
            unit = self.rng.choice(self.parts)()
            return self.rng.choice(WORDS) + unit * (50 + self.rng.randrange(1500) // len(unit)) + self.marked()
        return "".join(self.rng.choice(self.parts)() for _ in range(self.rng.randint(1, 9)))
