"""The machinery of the story generator: templates, the world of a story, frames.

Template syntax
    {slot}      a value of the world; a capital first letter capitalises it
    {@name}     a random shared fragment (a story does not use the same twice)
    [a|b|]      a choice, may be nested

A frame is written as plain text, one beat a line:
    text        a beat that is always told
    / text      another wording of the beat above
    ? text      an optional beat (left out of short stories, kept in long ones)
    --          a new paragraph;  ~~  perhaps a new paragraph
Articles need no care: "a" becomes "an" where the next word asks for it, and
the first letter of every sentence is raised at the end.
"""

import re

from tools.demo import words

_TOKEN = re.compile(r"\{(@?)([^}]*)\}|([\[\]|])")
_SENTENCE = re.compile(r'(^|(?<!\.\.)[.!?] |\." |\n\n)("?)([a-z])')
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU]|hour|honest)(?!(?:one|once|un[ai][a-z]|use|eu)[a-z]*\b)")


def compile_template(text):
    """Parses a template into a tuple of str, ("s", slot), ("f", fragment), ("a", choices)."""
    stack = [[[]]]
    pos = 0
    for match in _TOKEN.finditer(text):
        if match.start() > pos:
            stack[-1][-1].append(text[pos:match.start()])
        pos = match.end()
        mark = match.group(3)
        if mark is None:
            stack[-1][-1].append(("f" if match.group(1) else "s", match.group(2)))
        elif mark == "[":
            stack.append([[]])
        elif mark == "|":
            if len(stack) == 1:
                raise ValueError(f"'|' outside brackets: {text}")
            stack[-1].append([])
        else:
            if len(stack) == 1:
                raise ValueError(f"unopened ']': {text}")
            choices = stack.pop()
            stack[-1][-1].append(("a", [tuple(c) for c in choices]))
    if len(stack) != 1:
        raise ValueError(f"unclosed '[': {text}")
    if pos < len(text):
        stack[-1][-1].append(text[pos:])
    return tuple(stack[0][0])


FRAGMENTS = {}


def fragments(text):
    """Registers shared fragments: a line "name:" opens a list, every further line is one entry.

    A leading "3*" weights an entry.
    """
    name = None
    for line in text.strip().split("\n"):
        line = line.strip()
        if not line:
            continue
        if re.fullmatch(r"[a-z0-9_]+:", line):
            name = line[:-1]
            FRAGMENTS.setdefault(name, [])
            continue
        weight = 1
        match = re.match(r"(\d+)\*\s*", line)
        if match:
            weight, line = int(match.group(1)), line[match.end():]
        FRAGMENTS[name].extend([compile_template(line)] * weight)


class World(dict):
    """Slots of one story. A capitalised slot is derived on demand."""

    def __init__(self, rng):
        super().__init__()
        self.rng = rng
        self.random = rng.random
        self.used = set()

    def __missing__(self, key):
        if key[:1].isupper():
            value = self[key[0].lower() + key[1:]]
            value = value[0].upper() + value[1:]
            self[key] = value
            return value
        raise KeyError(key)

    def expand(self, items, out):
        for item in items:
            if item.__class__ is str:
                out.append(item)
                continue
            code, payload = item
            if code == "s":
                out.append(self[payload])
                if payload == "trait" or payload == "most":
                    self.used.add("trait")
                elif payload == "ff" or payload == "oo":  # introduced once, then called by name
                    self[payload] = self[payload[0]]
            elif code == "a":
                self.expand(payload[int(self.random() * len(payload))], out)
            else:
                self.expand(self.fragment(payload), out)

    def fragment(self, name):
        if name == "about" and "trait" in self.used:
            name = "more"  # the trait has been named already
        entries = self.sense if name == "sense" else self.fine if name == "fine" else FRAGMENTS[name]
        size = len(entries)
        for _ in range(6):
            chosen = entries[int(self.random() * size)]
            if id(chosen) not in self.used:
                break
        self.used.add(id(chosen))
        return chosen

    def text(self, template):
        out = []
        self.expand(template if template.__class__ is tuple else compiled(template), out)
        return "".join(out)

    def choice(self, items):
        return items[int(self.random() * len(items))]


_CACHE = {}


def compiled(text):
    found = _CACHE.get(text)
    if found is None:
        found = _CACHE[text] = compile_template(text)
    return found


def polish(text):
    """Raises sentence starts and mends articles."""
    text = _SENTENCE.sub(lambda m: m.group(1) + m.group(2) + m.group(3).upper(), text)
    text = text.replace('?,"', '?"').replace('!,"', '!"').replace('!".', '!"').replace('?".', '?"').replace('.".', '."').replace('??', '?')
    return _ARTICLE.sub(lambda m: m.group(1) + "n ", text)


_HOOVES = set("fawn lamb piglet calf pony donkey goat llama yak giraffe zebra rhino antelope camel reindeer unicorn hippo".split()) | {"elephant calf"}
_WINGS = set("hen duckling gosling penguin emu".split())


class Kind:
    def __init__(self, line):
        name, settings, homes, foods, tags = (part.strip() for part in line.split(";"))
        self.name = name
        self.settings = settings.split()
        self.homes = [h.strip() for h in homes.split(",")]
        self.foods = [f.strip() for f in foods.split(",")]
        self.hands = ("hooves" if name in _HOOVES else "wings" if "fly" in tags and "creature" not in tags or name in _WINGS
                      else "hands" if "creature" in tags and "dragon" not in name or name == "monkey" else "paws")
        self.tags = {"hoof"} if self.hands == "hooves" else set()
        self.tags |= set(tags.split()) | set(
            () if "creature" in tags.split() or "bug" in tags.split() else ("animal",))


for _place in words.SETTINGS.values():
    _place["sense"] = [(line,) for line in _place["sense"]]
    _place["fine"] = [(line,) for line in _place["fine"]] + _place["sense"]

KINDS = [Kind(line) for line in words._KINDS.strip().split("\n")]
KIND = {k.name: k for k in KINDS}
CHILD_FOODS = ["pancakes", "apple pie", "warm bread with butter", "plum cake", "noodle soup", "honey rolls", "strawberry jam",
               "cheese on toast", "hot chocolate", "cherry pie", "potato soup", "raisin buns", "gingerbread", "porridge with honey",
               "roast apples", "blueberry muffins", "rice pudding", "lemon cake"]
TEMPERATE = ("forest", "meadow", "farm", "village", "river", "garden", "mountain", "seaside", "town")
GREEN = ("forest", "meadow", "farm", "village", "river", "garden", "mountain")
ANYWHERE = tuple(words.SETTINGS)

FRAMES = []


class Frame:
    """One plot. See plots_*.py for how frames are written."""

    def __init__(self, name, topics, titles, text, facts="", where=TEMPERATE, hero="child animal", ban="", need="",
                 picks=None, kinds=None, weight=1.0, friend=True, themes=(), morning="fine", friend_ban="", traits="", not_traits="", prepare=None):
        self.name = name
        self.topics = [compiled(t) for t in topics]
        self.titles = [compiled(t) for t in titles]
        self.where = where
        self.weight = weight
        self.friend = friend
        self.friend_ban = set(friend_ban.split()) | {"made", "bug"}
        self.themes = themes
        self.morning = morning
        self.prepare = prepare
        # Traits that would contradict the plot are left out: no honest hero hides a broken vase.
        self.traits = [t for t in words.TRAITS if (not traits or t in traits.split()) and t not in not_traits.split()]
        self.picks = {slots: [[compiled(p.strip()) for p in option.split(" // ")] for option in options]
                      for slots, options in (picks or {}).items()}
        self.beats = []
        for line in text.strip().split("\n"):
            line = line.strip()
            if not line:
                continue
            if line in ("--", "~~"):
                self.beats.append((line, None))
            elif line.startswith("/"):
                self.beats[-1][1].append(compiled(line[1:].strip()))
            elif line.startswith("?"):
                self.beats.append(("?", [compiled(line[1:].strip())]))
            else:
                self.beats.append(("", [compiled(line)]))
        self.facts = []
        for line in facts.strip().split("\n"):
            if line.strip():
                question, answer = line.split("=>")
                self.facts.append((compiled(question.strip()), compiled(answer.strip())))
        # All (setting, kind or None for a child) pairs this frame may start from.
        hero_types = set(hero.split())
        banned, needed = set(ban.split()), set(need.split())
        self.casts = []
        for setting in where:
            animals = [k for k in KINDS if setting in k.settings and k.tags & hero_types
                       and not k.tags & banned and needed <= k.tags and (kinds is None or k.name in kinds)]
            child = "child" in hero_types and setting in words.CHILD_HOMES and not (kinds or needed)
            if animals:
                self.casts.append((setting, animals))
            if child:
                self.casts.append((setting, None))
        if not self.casts:
            raise ValueError(f"frame {name} has no possible hero")
        FRAMES.append(self)


_PRONOUNS = {"m": ("he", "him", "his", "himself"), "f": ("she", "her", "her", "herself"), "n": ("it", "it", "its", "itself")}


def set_person(world, prefix, name, gender, kind, the):
    he, him, his, himself = _PRONOUNS[gender]
    world[prefix + "he"], world[prefix + "him"], world[prefix + "his"], world[prefix + "himself"] = he, him, his, himself
    # "hers" and "his" differ where no noun follows.
    world[prefix + "own"] = "his" if gender == "m" else "hers"
    world[(prefix or "h")] = name
    world[prefix + "kind"] = kind
    world[prefix + "the"] = the


def as_hero(world, kind, he, inplace="nowhere in this story"):
    """Makes a thing the hero of a story whose frame names it {name}: a boat, a cloud."""
    set_person(world, "", world["name"], {"he": "m", "she": "f", "it": "n"}[he], kind, "the " + kind)
    world["inplace"], world["home"], world["trait"] = inplace, inplace, "nowhere in this story"
    world.child = True


def _animal_name(world, gender, taken):
    while True:
        pool = words.PETS if world.random() < 0.6 else (words.BOYS if gender == "m" else words.GIRLS)
        name = world.choice(pool)
        if name not in taken:
            taken.add(name)
            return name


def _child_name(world, gender, taken):
    while True:
        name = world.choice(words.BOYS if gender == "m" else words.GIRLS)
        if name not in taken:
            taken.add(name)
            return name


_ELDERS = (("mother", "f"), ("father", "m"), ("grandmother", "f"), ("grandfather", "m"), ("aunt", "f"), ("uncle", "m"))
_ODD_PEOPLE = {"prince", "princess", "knight", "witch", "wizard"}


def make_world(rng, frame):
    """Chooses hero, friend, wise helper, elder and setting, so that they fit each other."""
    world = World(rng)
    random = world.random
    setting, animals = world.choice(frame.casts)
    place = words.SETTINGS[setting]
    world["setting"] = setting
    inplace = world.choice(place["places"])
    world["inplace"] = inplace
    world["placethe"] = place["the"]
    near = rng.sample(place["near"], 3)
    world["near"], world["near2"], world["near3"] = near
    spots = rng.sample(place["spots"], 4)
    # A search must not end where it began, so the spots differ from the landmarks.
    spots = [s for s in spots if near[0][4:] not in s] + ["under a flat stone"]
    world["spot1"], world["spot2"], world["spot3"] = spots[:3]
    world["water"], world["path"], world["high"] = place["water"], place["path"], place["high"]
    world["morning"] = frame.morning
    world.sense, world.fine = place["sense"], place["fine"]
    taken = set()
    gender = "m" if random() < 0.5 else "f"
    child = animals is None
    world.child = child
    if child:
        name = _child_name(world, gender, taken)
        kind = "boy" if gender == "m" else "girl"
        world["little"] = world.choice(("little", "young", "little"))
        home = world.choice(words.CHILD_HOMES[setting])
        food = world.choice(CHILD_FOODS)
        tags = set()
    else:
        spec = world.choice(animals)
        tags = spec.tags
        gender = "m" if "male" in tags else "f" if "female" in tags else gender
        person = spec.name in _ODD_PEOPLE
        name = _child_name(world, gender, taken) if person else _animal_name(world, gender, taken)
        kind = spec.name
        if "calf" in kind or "cub" in kind or "pup" in kind or kind.startswith("baby"):
            world["little"] = "little"
        elif "big" in tags:
            world["little"] = "young"
        elif person:
            world["little"] = "young"
        elif "small" in tags:
            world["little"] = "little"
        else:
            world["little"] = world.choice(("little", "young", "little"))
        home = world.choice(spec.homes)
        food = world.choice(spec.foods)
    world.tags = tags
    set_person(world, "", name, gender, kind, "the " + kind)
    world["home"] = "a " + home if not home.startswith(("a ", "the ")) else home
    world["homethe"] = _short_home(home)
    world["food"] = food
    trait = world.choice(frame.traits)
    world["trait"] = trait
    world["most"] = words.MOST.get(trait) or "most " + trait
    world["traitline"] = world.text(world.choice(_TRAIT_LINES[trait]))
    elder, elder_gender = world.choice(_ELDERS)
    set_person(world, "e", elder, elder_gender, elder, world["his"] + " " + elder)
    world["e"] = world["his"] + " " + elder
    world["elder"] = elder
    # The friend: another child for a child, else another kind from the same place.
    friend_gender = "m" if random() < 0.5 else "f"
    if child:
        set_person(world, "f", _child_name(world, friend_gender, taken), friend_gender,
                   "boy" if friend_gender == "m" else "girl", "the boy" if friend_gender == "m" else "the girl")
    else:
        others = _friends(setting, frame)
        for _ in range(8):
            friend = world.choice(others)
            if friend.name != kind:
                break
        set_person(world, "f", _animal_name(world, friend_gender, taken), friend_gender, friend.name, "the " + friend.name)
    other_gender = "m" if random() < 0.5 else "f"
    if child:
        set_person(world, "o", _child_name(world, other_gender, taken), other_gender,
                   "boy" if other_gender == "m" else "girl", "the boy" if other_gender == "m" else "the girl")
    else:
        for _ in range(12):
            other = world.choice(_friends(setting, frame))
            if other.name not in (kind, world["fkind"]):
                break
        set_person(world, "o", _animal_name(world, other_gender, taken), other_gender, other.name, "the " + other.name)
    # How friend and other are introduced: "Pip the fox", but no "Tom the boy".
    world["ff"] = world.choice((world["f"], f"{world['his']} friend {world['f']}")) if child else f"{world['f']} the {world['fkind']}"
    world["hands"] = "hands" if child else spec.hands
    world["hand"] = {"hooves": "hoof"}.get(world["hands"], world["hands"][:-1])
    world["both"] = (f"{world['his']} friends {world['f']} and {world['o']}" if child
                     else f"{world['f']} the {world['fkind']} and {world['o']} the {world['okind']}")
    world["oo"] = world.choice((world["o"], f"{world['his']} friend {world['o']}")) if child else f"{world['o']} the {world['okind']}"
    # The wise helper: a neighbour for children, an old animal for the rest.
    if child or kind in _ODD_PEOPLE or setting in ("village", "town") and kind == "robot":
        wise_name, wise_gender, job = world.choice(words.WISE_PEOPLE)
        set_person(world, "w", wise_name, wise_gender, job, wise_name)
        world["wise"] = f"{wise_name} the {job}"
        world["wisethe"] = wise_name
    else:
        options = [k for k in words.WISE[setting] if k not in (kind, world["fkind"], world["okind"])]
        wise_kind = world.choice(options or words.WISE[setting])
        wise_gender = "m" if random() < 0.5 else "f"
        wise_name = world.choice(words.WISE_NAMES)
        set_person(world, "w", wise_name, wise_gender, wise_kind, "the old " + wise_kind)
        world["wise"] = f"{wise_name} the {wise_kind}"
        world["wisethe"] = "the old " + wise_kind
    colours = rng.sample(words.COLOURS, 2)
    world["colour"], world["colour2"] = colours
    world["plain"] = world.choice(words.COLOURS[:13])
    for slots, options in frame.picks.items():
        option = options[int(random() * len(options))]
        for slot, template in zip(slots.split(), option, strict=True):
            world[slot] = world.text(template)
    if frame.prepare:
        frame.prepare(world)
    return world


def _short_home(home):
    """The word by which a home is called when it is named again: "burrow" of "burrow with a round door"."""
    head = re.split(r" (?:under|with|behind|of|by|in|among|above|beside|made|that|below|near|on|high|full|at)\b", home)[0]
    return "the " + head.split(" ")[-1]


_TRAIT_LINES = {trait: [compiled(line) for line in lines] for trait, lines in words.TRAITS.items()}
_FRIEND_CACHE = {}


def _friends(setting, frame):
    key = (setting, frame.name)
    found = _FRIEND_CACHE.get(key)
    if found is None:
        # Creatures of legend stay heroes: a friend is an ordinary animal.
        found = [k for k in KINDS if setting in k.settings and "creature" not in k.tags and not k.tags & frame.friend_ban]
        # Towns hold few kinds, so that a friend may come from the farm.
        if len(found) < 4:
            found = found + [KIND[n] for n in ("puppy", "kitten", "sparrow", "mouse", "goat", "hen") if KIND[n] not in found]
        _FRIEND_CACHE[key] = found
    return found


def render(world, frame, length=None):
    """Tells the frame in this world: paragraphs separated by one blank line."""
    random = world.random
    keep = {"short": 0.12, "long": 0.95, None: 0.15 + 0.5 * random()}[length]
    paragraphs, current = [], []
    for code, variants in frame.beats:
        if code == "--" or code == "~~":
            if current and (code == "--" or random() < 0.5):
                paragraphs.append(" ".join(current))
                current = []
            continue
        if code == "?" and random() >= keep:
            continue
        out = []
        world.expand(variants[int(random() * len(variants))] if len(variants) > 1 else variants[0], out)
        sentence = "".join(out).strip()
        if sentence:
            current.append(sentence)
    if current:
        paragraphs.append(" ".join(current))
    return polish("\n\n".join(paragraphs))
