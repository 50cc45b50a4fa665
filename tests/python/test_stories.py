"""Checks of the story generator: what every story must be, whatever the seed."""

import pathlib
import random
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools.demo import stories  # noqa: E402
from tools.demo.frames import FRAMES, make_world, render  # noqa: E402


@pytest.fixture(scope="module")
def many():
    rng = random.Random(11)
    return [stories.make_story(rng) for _ in range(2000)]


def problems(text):
    """Whatever is wrong with the mechanics of a text."""
    found = []
    for pattern, meaning in [
        (r"[{}\[\]|@_]", "unfilled slot"),
        (r"  |\n\n\n| \n|\n ", "stray space"),
        (r"[^\x20-\x7e\n]", "not ASCII"),
        (r"\b[Aa] (?=[aeiouAEIOU])(?!one|once|uni|use|Eu|eu|una)", "a before a vowel"),
        (r"\b[Aa]n (?=[^aeiouAEIOUh])", "an before a consonant"),
        (r" [,.!?;]", "space before a mark"),
        (r"[,;][.!?,;]|[!?][.,]|[!?]{2}|(?<!\.)\.,", "doubled mark"),
        (r"(?<!\.)\.\.(?!\.)", "doubled stop"),
        (r'[a-z] [.!?]', "loose mark"),
        (r"\b(\w+) \1\b(?<!\bhad had)(?<!\bthat that)", "doubled word"),
        (r"(?<!\.\.)[.!?] [a-z]", "small letter after a stop"),
        (r"\n\n[a-z]", "small letter at a paragraph"),
        (r'[a-z]" (?:said|asked|cried)\b', "no comma before a tag"),
        (r"\b(?:childs|mouses|gooses|sheeps)\b", "wrong plural"),
    ]:
        for match in re.finditer(pattern, text):
            around = text[max(0, match.start() - 30):match.end() + 30]
            word = re.match(r"\w+", match.group(0))
            # Sounds and calls are doubled on purpose ("hush hush"); a verb is not.
            if meaning == "doubled word" and word and word.group(0).lower() in ("very", "far", "long", "knock", "hoo"):
                continue
            found.append((meaning, around))
    for paragraph in text.split("\n\n"):
        if paragraph.count('"') % 2:
            found.append(("unbalanced quotes", paragraph[:60]))
        if paragraph[-1:] not in '.!?"':
            found.append(("unfinished paragraph", paragraph[-40:]))
    return found


def test_same_seed_same_story():
    first = [stories.make_story(random.Random(7)) for _ in range(2)]
    assert first[0].text == first[1].text and first[0].topic == first[1].topic
    assert stories.story_chat(random.Random(8)) == stories.story_chat(random.Random(8))
    assert stories.make_small_talk(random.Random(9)) == stories.make_small_talk(random.Random(9))


def test_mechanics(many):
    found = [(s.frame, p) for s in many for p in problems(s.text)]
    assert not found, found[:10]


def test_topics_and_titles(many):
    for story in many:
        assert story.topic and story.title
        assert not re.search(r"[{}\[\]|]|  ", story.topic + story.title), story.topic
        assert not re.search(r"\ba [aeiou](?!ni)", story.topic), story.topic


def test_hero_is_in_the_story(many):
    for story in many:
        assert story.hero in story.text, (story.frame, story.hero)
        for name in (story.world["h"], story.world["f"], story.world["o"]):
            if re.search(rf"\b{name}\b", story.topic):
                assert name in story.text, (story.frame, story.topic)


def test_no_duplicates(many):
    assert len({s.text for s in many}) == len(many)


def test_lengths(many):
    sizes = sorted(s.words for s in many)
    assert sizes[0] >= 60 and sizes[-1] <= 420, (sizes[0], sizes[-1])


@pytest.mark.parametrize("frame", FRAMES, ids=lambda f: f.name)
def test_pronouns(frame):
    """Where everybody of a story has one gender, no pronoun of the other may appear."""
    male, female = re.compile(r"\b(?:he|him|his|himself)\b", re.I), re.compile(r"\b(?:she|her|hers|herself)\b", re.I)
    rng = random.Random(5)
    seen = 0
    for _ in range(400):
        world = make_world(rng, frame)
        roles = {world[p + "he"] for p in ("", "f", "o", "w", "e")}
        if len(roles) != 1 or any(world.get(k, "").split(" ")[0] in ("he", "she") for k in world if k.endswith("he") and len(k) > 4):
            continue
        text = render(world, frame)
        wrong = (female if roles == {"he"} else male).findall(text)
        if frame.name not in PRONOUNS_OF_OTHERS:
            assert not wrong, (frame.name, wrong, text)
        seen += 1
    assert seen or frame.name in PRONOUNS_OF_OTHERS


# Frames in which somebody beyond the five usual roles is "he" or "she".
PRONOUNS_OF_OTHERS = {"lighthouse_storm", "bridge_riddle", "deliver_parcel", "lost_baby", "night_forest", "fallen_star",
                      "music_heals", "kind_giant", "knight_dragon", "apprentice_spell", "snowman", "cloud", "treasure_map", "boaster",
                      "rocket_moon", "clock_tower", "little_boat", "little_train", "old_toy", "undersea_song",
                      "gentle_pirate", "sick_grandmother", "little_ghost", "royal_garden", "cat_home", "pencil"}


def test_facts_and_chat():
    rng = random.Random(3)
    for _ in range(400):
        story = stories.make_story(rng)
        assert len(story.facts) >= 4
        for question, answer in story.facts:
            assert not re.search(r"[{}\[\]|]|  ", question + answer), (question, answer)
            assert question[0].isupper() and answer[0].isupper() and question.endswith("?"), question
        assert "{" not in stories.chat_request(rng, story)
        talk = stories.make_small_talk(rng)
        assert 1 <= len(talk) <= 4 and all(q and a for q, a in talk)
        assert all(q and a for q, a in stories.story_chat(rng))
