"""Conversations around stories: requests, follow-up questions, small talk."""

import re

from tools.demo.frames import KIND, compiled, polish

_SMALL_WORDS = {"a", "an", "the", "and", "of", "in", "on", "to", "for", "who", "that", "with", "at", "by"}


def title_case(title):
    """Raises the words of a title, "Mira and the Lost Kite"."""
    parts = title.split(" ")
    return " ".join(p if i and p.lower() in _SMALL_WORDS else p[:1].upper() + p[1:] for i, p in enumerate(parts))


def _pick(rng, items):
    return items[int(rng.random() * len(items))]


_PLAIN = ["Tell me a story.", "Tell me a story, please.", "Please tell me a story.", "Can you tell me a story?", "I would like to hear a story.", "Tell me a bedtime story.",
          "Write a story.", "Do you know a story?", "Story, please!", "Will you tell me a story?", "Tell me something nice.", "Make up a story for me.", "Could you tell me a story?"]
_ABOUT = ["Can you tell me a story about {}?", "Please tell me a story about {}.", "Tell me a story about {}, please.", "Write a story about {}.", "I want a story about {}.",
          "I would like a story about {}.", "Could you tell me a story about {}?", "A story about {}, please.", "Write me a story about {}.", "Make up a story about {}.",
          "Do you know a story about {}?", "Tell me a tale about {}.", "Tell me about {}.", "Tell a story about {}.", "Will you tell me a story about {}?", "Give me a story about {}.",
          "My little sister wants a story about {}.", "My son loves stories. Tell him one about {}.", "Let us have a story about {}.", "Hello! Tell me a story about {}.",
          "Hi, can you tell me a story about {}?", "Once more, please: a story about {}.", "Story about {}", "story about {}", "tell me a story about {}", "write a story about {}",
          "Now a story about {}, please.", "I am tired. Tell me a story about {}.", "It is bedtime. Tell me a story about {}.", "Write a children's story about {}.",
          "Tell me a bedtime story about {}.", "Tell me a nice story about {}.", "Tell me a story with a happy ending about {}.", "Write a simple story about {}.",
          "Tell me a sweet little story about {}.", "I would love to hear about {}."]
_SHORT = ["Tell me a short story about {}.", "Write a short story about {}.", "A short story about {}, please.", "Can you tell me a very short story about {}?", "Tell me a little story about {}. Keep it short."]
_LONG = ["Tell me a long story about {}.", "Write a long story about {}.", "I have time. Tell me a long story about {}.", "Please tell me a longer story about {}."]


def chat_request(rng, story):
    """A request that this story answers."""
    r = rng.random()
    if r < 0.08:
        return _pick(rng, _PLAIN)
    topic = story.topic
    words = story.words
    if words < 190 and rng.random() < 0.35:
        return _pick(rng, _SHORT).format(topic)
    if words > 300 and rng.random() < 0.2:
        return _pick(rng, _LONG).format(topic)
    if r < 0.14 and story.hero not in topic:
        return f"Tell me a story about {topic}. {_pick(rng, ('Call', 'Please call'))} {story.world['him']} {story.hero}."
    if r < 0.17:
        return f'{_pick(rng, ("Write a story called", "Tell me the story of", "Tell me a story with the title", "Write a story with the title"))} "{story.title}".'
    if r < 0.62:
        return f"Tell me a story about {topic}."
    return _pick(rng, _ABOUT).format(topic)


_ENDINGS = re.compile(r"how does it end|how did it end", re.I)


def common_facts(world, text):
    """Questions that any story answers, as far as its text really tells the answer."""
    facts = []
    name, kind, he, his = world["h"], world["kind"], world["he"], world["his"]
    facts.append((f"What was the {kind}'s name?", _pick(world.rng, (f"{world['His']} name was {name}.", f"The {kind}'s name was {name}.", f"The {kind} was called {name}."))))
    facts.append((f"Who is {name}?", f"{name} is the {kind} in the story."))
    facts.append(("Who was the story about?", f"It was about a {kind} named {name}."))
    inplace = world["inplace"]
    home = world["home"]
    if inplace in text or inplace[0].upper() + inplace[1:] in text:
        facts.append((_pick(world.rng, (f"Where did {he} live?", f"Where did {name} live?", f"Where did the {kind} live?")), f"{name} lived {inplace}."))
    elif home in text:
        facts.append((f"Where did {name} live?", f"{name} lived in {home}."))
    if f"favourite food was {world['food']}" in text or f"loved {world['food']}" in text or f"he liked {world['food']}" in text:
        facts.append((f"What did {name} like best?", f"{world['He']} liked {world['food']}."))
    if not world.child and f"{world['f']} the {world['fkind']}" in text:
        facts.append((f"Who was {world['f']}?", f"{world['f']} was a {world['fkind']}."))
    if re.search(rf"\b{world['trait']}\b", text[:260]):
        facts.append((f"What was {name} like?", f"{name} was {world['trait']}."))
    return facts


def story_facts(world, frame, text):
    facts = common_facts(world, text)
    for question, answer in frame.facts:
        facts.append((world.text(question), world.text(answer)))
    return [(polish(q), polish(a)) for q, a in facts]


_GREET = [("Hello!", "Hello! I am glad you are here. Would you like a story?"), ("Hi!", "Hi! Shall I tell you a story?"), ("Hi there!", "Hi there! I know a great many stories. Would you like one?"),
          ("Good morning!", "Good morning! It is a fine time for a story."), ("Good evening.", "Good evening! Evenings are the best time for stories. Shall I tell you one?"),
          ("Hey", "Hey! What kind of story would you like to hear?"), ("Hello, how are you?", "I am well, thank you. I am always happy when somebody wants a story."),
          ("How are you?", "I am fine, thank you! And you? Would you like to hear a story?"), ("hello", "Hello! Tell me what the story should be about, and I will begin."),
          ("hi", "Hi! Give me a hero, and I will tell you a story."), ("Good afternoon!", "Good afternoon! Would you like a story with your tea?"),
          ("Hello there!", "Hello there! Ask me for a story about anything you like."), ("What's up?", "Not much! I was just thinking of a new story. Would you like to hear one?")]
_WHO = [("Who are you?", ["I am a very small model that ships with kipp, and I like to tell stories.", "I am a tiny language model. I come with kipp, and telling stories is what I do best.",
                          "I am the little demo model of kipp. I know simple words, and I like simple stories."]),
        ("What are you?", ["I am a very small language model that ships with kipp. I like telling stories.", "A very small model with a love of stories. I ship with kipp."]),
        ("What is your name?", ["I do not have a real name. I am the small model that ships with kipp.", "You can call me kipp's little storyteller. I am a very small model."]),
        ("Are you a person?", ["No, I am a very small language model. But the heroes of my stories feel quite real to me.", "No, I am only a small model that ships with kipp and likes telling stories."]),
        ("What can you do?", ["I can tell you short stories. Try: Tell me a story about a brave little fox.", "I tell stories! Ask me for one about a dragon, a lighthouse or a lost kite.",
                              "I am a very small model, so I cannot do much, but I can tell you a story."]),
        ("What is kipp?", ["kipp is the program that runs me. It runs much bigger models too.", "kipp is an engine for language models. I am the small model that ships with it."]),
        ("Are you clever?", ["Not very! I am a very small model. But I like telling stories.", "I am too small to be very clever, but I know how to tell a story."]),
        ("How big are you?", ["I am very small, as models go. That is why my stories are simple.", "Very small! I fit into a few megabytes, with room for a lot of foxes and dragons."]),
        ("Can you help me with my homework?", ["I am a very small model, so I would make many mistakes. But I can tell you a story when you are done.", "I am afraid I only know stories. Would you like one as a break?"]),
        ("What do you like?", ["I like telling stories, best of all about small heroes with big wishes.", "I like stories that end well."]),
        ("Do you like stories?", ["I love stories! Shall I tell you one?", "Yes, more than anything. Would you like to hear one?"]),
        ("Who made you?", ["I was made to ship with kipp, so that it has a story to tell from the very first day.", "The makers of kipp trained me to tell small stories."]),
        ("What stories do you know?", ["I know stories about foxes, dragons, robots, lost things and found friends. Which would you like?", "I know stories of animals, children, storms, gardens and secret doors. Pick one!"])]
_THANKS = [("Thank you!", ["You are welcome! Come back soon for another story.", "You are very welcome!", "My pleasure! Would you like another one?"]),
           ("Thanks!", ["You are welcome!", "Any time!", "It was my pleasure."]), ("Thank you, that was lovely.", ["I am glad you liked it!", "Thank you for listening."]),
           ("That was a nice story.", ["Thank you! I am glad you liked it.", "I liked telling it. Shall I tell another?"]), ("I liked that.", ["I am so glad! Shall I tell you another one?", "That makes me happy."]),
           ("Thank you so much!", ["You are very welcome. Thank you for listening!"]), ("thanks", ["You are welcome!"]), ("That was beautiful.", ["Thank you! It was fun to tell."]),
           ("Good story!", ["Thank you! There are many more where that one came from."])]
_BYE = [("Good night!", ["Good night! Sleep well, and dream of something nice.", "Good night! May your dreams be full of friendly dragons.", "Good night, and sweet dreams!"]),
        ("Goodbye!", ["Goodbye! Come back soon for another story.", "Goodbye! It was nice to talk to you."]), ("Bye!", ["Bye! See you soon.", "Bye! I will keep a story ready for you."]),
        ("See you tomorrow.", ["See you tomorrow! I will think of a new story."]), ("I have to go now.", ["Goodbye, then! I will be here when you want a story."]), ("bye", ["Bye! Come back soon."])]


def _turn(rng, pairs):
    question, answers = _pick(rng, pairs)
    return question, answers if isinstance(answers, str) else _pick(rng, answers)


def small_talk(rng):
    turns = []
    r = rng.random()
    if r < 0.55:
        turns.append(_turn(rng, _GREET))
    if r > 0.3:
        turns.append(_turn(rng, _WHO))
        if rng.random() < 0.4:
            extra = _turn(rng, _WHO)
            if extra[0] != turns[-1][0]:
                turns.append(extra)
    if rng.random() < 0.25:
        turns.append(_turn(rng, _THANKS[:2] + _THANKS[6:7]))
    if rng.random() < 0.2 or not turns:
        turns.append(_turn(rng, _BYE))
    return turns[:4]


_ANOTHER = ["Tell me another story about {}.", "Another one, please. This time about {}.", "Now tell me a story about {}.", "Can you tell me one about {}?", "And now a story about {}, please.",
            "One more! About {}.", "Tell me another one, about {}.", "Great! Now one about {}."]
_ANOTHER_PLAIN = ["Tell me another story.", "Another one, please!", "One more story, please.", "Again! Another one!", "Can you tell me another one?"]
_YES = ["Yes", "Yes, please!", "Yes please", "Oh yes!", "Sure"]


def talk_about(rng, make_story):
    """Request and story, questions about it, perhaps thanks, perhaps another story."""
    turns = []
    if rng.random() < 0.15:
        turns.append(_turn(rng, _GREET))
    story = make_story(rng)
    turns.append((chat_request(rng, story), story.text))
    turns.extend(follow_ups(rng, story))
    if rng.random() < 0.3:
        turns.append(_turn(rng, _THANKS))
    if rng.random() < 0.3:
        story = make_story(rng)
        request = _pick(rng, _ANOTHER_PLAIN) if rng.random() < 0.2 else _pick(rng, _ANOTHER).format(story.topic)
        turns.append((request, story.text))
        turns.extend(follow_ups(rng, story)[:1])
    if rng.random() < 0.25:
        turns.append(_turn(rng, _BYE))
    return turns


def follow_ups(rng, story):
    """One to three questions that the story's facts answer; the end is asked for last."""
    facts = list(story.facts)
    rng.shuffle(facts)
    chosen = facts[:1 + int(rng.random() * 3)]
    chosen.sort(key=lambda fact: bool(_ENDINGS.search(fact[0])))
    return chosen
