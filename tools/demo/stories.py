#!/usr/bin/env python3
"""Simple short stories for the demo checkpoint, made from hand-written frames.

    python3 -m tools.demo.stories --seed 1 --n 5

Everything is a function of the random.Random that is passed in.
"""

import argparse
import pathlib
import random
import re
import sys
from dataclasses import dataclass, field

if __package__ in (None, ""):  # run as a file: let the package be found
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools.demo import frames  # noqa: E402
from tools.demo import fragments  # noqa: E402,F401  (registers the shared sentences)
from tools.demo import plots_home  # noqa: E402,F401  (each module registers its frames)
from tools.demo import plots_travel  # noqa: E402,F401
from tools.demo import plots_wonder  # noqa: E402,F401
from tools.demo import plots_play  # noqa: E402,F401
from tools.demo import plots_more  # noqa: E402,F401
from tools.demo import plots_short  # noqa: E402,F401
from tools.demo import plots_extra  # noqa: E402,F401
from tools.demo import plots_tiny  # noqa: E402,F401
from tools.demo import chat  # noqa: E402

from tools.demo.frames import FRAMES, make_world, polish, render  # noqa: E402


@dataclass
class Story:
    topic: str
    title: str
    text: str
    frame: str = ""
    hero: str = ""
    facts: list = field(default_factory=list)  # (question, answer)
    world: dict = field(default_factory=dict, repr=False)

    @property
    def words(self):
        return self.text.count(" ") + self.text.count("\n\n") + 1


_TOTAL = []


def _frame(rng):
    if not _TOTAL:
        total = 0.0
        for frame in FRAMES:
            total += frame.weight
            _TOTAL.append(total)
    return rng.choices(FRAMES, cum_weights=_TOTAL)[0]


def make_story(rng, length=None, frame=None):
    """One story. length: None, "short" or "long"; frame: a frame, or None for any."""
    frame = frame or _frame(rng)
    world = make_world(rng, frame)
    text = render(world, frame, length)
    topic = polish_topic(world.text(world.choice(frame.topics)) if rng.random() > 0.25 else _plain_topic(world, text))
    title = chat.title_case(polish_topic(world.text(world.choice(frame.titles))))
    return Story(topic, title, text, frame.name, world["h"], chat.story_facts(world, frame, text), world)


def _plain_topic(world, text):
    """A topic that only names the hero: what most people ask for first."""
    kind, name = world["kind"], world["h"]
    options = [f"a {kind}", f"a {kind} named {name}", f"a {kind} called {name}"]
    if not world.child:
        options += [f"a {kind}", f"a little {kind}" if world["little"] == "little" else f"a {kind}", f"{name} the {kind}"]
        if f"{world['f']} the {world['fkind']}" in text:
            options += [f"a {kind} and a {world['fkind']}", f"{name} the {kind} and {world['f']} the {world['fkind']}"]
    elif re.search(rf"\b{world['f']}\b", text):
        options += [f"{name} and {world['f']}", f"two friends named {name} and {world['f']}"]
    if re.search(rf"\b{world['trait']}\b", text[:260]):
        options += [f"a {world['trait']} {kind}", f"a {world['trait']} {kind} named {name}"]
    return world.choice(options)


def polish_topic(topic):
    return frames._ARTICLE.sub(lambda m: m.group(1) + "n ", topic)


chat_request = chat.chat_request


def make_small_talk(rng):
    """One to four turns: greetings, who are you, thanks, or questions after a story."""
    if rng.random() < 0.15:
        story = make_story(rng)
        return [(chat_request(rng, story), story.text)] + chat.follow_ups(rng, story)
    return chat.small_talk(rng)


def story_chat(rng):
    """A conversation: request and story, then follow-ups answered from the story's facts."""
    return chat.talk_about(rng, make_story)


def main():
    parser = argparse.ArgumentParser(description="print stories")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--frame", help="only this frame")
    parser.add_argument("--chat", action="store_true", help="print conversations instead")
    parser.add_argument("--length", choices=["short", "long"])
    options = parser.parse_args()
    rng = random.Random(options.seed)
    chosen = [f for f in FRAMES if f.name == options.frame] if options.frame else [None]
    for _ in range(options.n):
        if options.chat:
            for question, answer in story_chat(rng) if rng.random() < 0.7 else make_small_talk(rng):
                print(f"> {question}\n{answer}")
            print("-" * 40)
            continue
        story = make_story(rng, options.length, rng.choice(chosen))
        print(f"# {story.title}  ({story.topic}; {story.words} words)\n\n{story.text}\n")


if __name__ == "__main__":
    main()
