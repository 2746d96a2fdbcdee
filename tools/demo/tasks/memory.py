"""Chats in which things said earlier have to be remembered, with small talk and sums in between."""
from item import Item, assistant, user
from tasks import about, sums
from words import COLOURS, FOODS, JOBS, OBJECTS, PETS, PLACES, SPORTS, city, name

# what the user says, the reply, what the user asks later, the answer
FACTS = {
    "name": (("My name is {v}.", "I am {v}.", "Call me {v}."), "Nice to meet you, {v}.", ("What is my name?", "Who am I?", "Do you know my name?"), "Your name is {v}.", name),
    "city": (("I live in {v}.", "My home is in {v}."), "{v} is a nice city.", ("Where do I live?", "In which city do I live?"), "You live in {v}.", city),
    "colour": (("My favourite colour is {v}.", "I like the colour {v}."), "I will remember {v}.", ("What is my favourite colour?", "Which colour do I like?"), "Your favourite colour is {v}.", COLOURS),
    "pet": (("I have a {v}.", "My pet is a {v}."), "A {v} is a good pet.", ("What pet do I have?", "Which animal do I have?"), "You have a {v}.", PETS),
    "food": (("I like to eat {v}.", "My favourite food is {v}."), "I will remember {v}.", ("What do I like to eat?", "What is my favourite food?"), "You like {v}.", FOODS),
    "sport": (("My sport is {v}.", "I do {v} every week."), "Have fun with {v}.", ("What is my sport?", "Which sport do I do?"), "Your sport is {v}.", SPORTS),
    "job": (("I work as a {v}.", "My job is {v}."), "That is good work.", ("What is my job?", "What do I work as?"), "You work as a {v}.", JOBS),
    "sister": (("My sister is called {v}.", "The name of my sister is {v}."), "I will remember {v}.", ("What is the name of my sister?", "How is my sister called?"), "Your sister is called {v}.", name),
    "thing": (("I put my {o} in the {v}.", "My {o} is in the {v}."), "I will remember that.", ("Where is my {o}?", "Where did I put my {o}?"), "Your {o} is in the {v}.", PLACES),
    "number": (("My lucky number is {v}.", "Remember the number {v}."), "I will remember {v}.", ("What is my number?", "Which number did I tell you?"), "The number is {v}.", lambda r: str(r.randint(2, 999))),
}


def draw(rng, values):
    return values(rng) if callable(values) else rng.choice(values)


def at_once(rng):
    """A fact and the question about it in one message."""
    chosen, thing = rng.sample(list(FACTS), rng.choice((1, 1, 2))), rng.choice(OBJECTS)
    values = {k: draw(rng, FACTS[k][4]) for k in chosen}
    told = " ".join(rng.choice(FACTS[k][0]).format(v=values[k], o=thing) for k in chosen)
    k = rng.choice(chosen)
    return Item("memory", [user(told + " " + rng.choice(FACTS[k][2]).format(o=thing)), assistant(FACTS[k][3].format(v=values[k], o=thing))])


def make(rng, facts=None):
    if rng.random() < 0.15:
        return at_once(rng)
    chosen = rng.sample(list(FACTS), facts or rng.randint(1, 6))
    thing = rng.choice(OBJECTS)
    values = {k: draw(rng, FACTS[k][4]) for k in chosen}
    turns = []
    for k in chosen:
        says, reply, *_ = FACTS[k]
        turns.append((rng.choice(says).format(v=values[k], o=thing), "", reply.format(v=values[k])))
    for _ in range(rng.choice((0, 0, 1, 2))):           # something in between
        turns.insert(rng.randint(1, len(turns)), sums.problem(rng) if rng.random() < 0.4 else about.turn(rng))
    if rng.random() < 0.2:                              # a change of mind: the later word counts
        k = rng.choice(chosen)
        values[k] = draw(rng, FACTS[k][4])
        turns.append((rng.choice(FACTS[k][0]).format(v=values[k], o=thing), "", FACTS[k][1].format(v=values[k])))
    for k in rng.sample(chosen, rng.randint(1, len(chosen))):
        _, _, asks, answer, _ = FACTS[k]
        turns.append((rng.choice(asks).format(o=thing), "", answer.format(v=values[k], o=thing)))
    messages = []
    for q, think, a in turns:
        messages += [user(q), assistant(a, think)]
    return Item("memory", messages)
