"""Keys and values in a long text: what was the code of the amber falcon?"""
from item import Item, assistant, user
from words import ADJECTIVES, CITIES, NAMES, NOUNS, PLACES

READ = "I have read the notes."
KINDS = (
    ("code", "The code of the {k} is {v}.", ("What is the code of the {k}?", "Tell me the code of the {k}.")),
    ("home", "The {k} lives in {v}.", ("Where does the {k} live?", "In which city does the {k} live?")),
    ("owner", "The {k} belongs to {v}.", ("Who owns the {k}?", "To whom does the {k} belong?")),
)


MIXES = ((1, 0, 0), (0.6, 0.2, 0.2), (0.34, 0.33, 0.33))             # how many records are of each kind


def value(rng, kind):
    if kind == "code":
        return "".join(rng.choice("0123456789") for _ in range(4))
    return rng.choice(CITIES if kind == "home" else NAMES)


def filler(rng):
    return f"{rng.choice(NAMES)} walked to the {rng.choice(PLACES)}."


def notes(rng, count, noise, mix):
    """(lines, asks): `count` records with distinct keys among lines about nothing."""
    keys = rng.sample(range(len(ADJECTIVES) * len(NOUNS)), count)
    lines, records = [], []
    for n in keys:
        key = f"{ADJECTIVES[n % len(ADJECTIVES)]} {NOUNS[n // len(ADJECTIVES)]}"
        kind, text, asks = rng.choices(KINDS, mix)[0]
        v = value(rng, kind)
        lines.append(text.format(k=key, v=v))
        records.append((rng.choice(asks).format(k=key), v))
        if rng.random() < noise:
            lines.append(filler(rng))
    return lines, records


def make(rng, tokens, asks=None):
    """A context of at most `tokens` tokens: a code takes 13, another record 8, a line of filler 7, a question 19."""
    asks = asks or max(4, min(64, tokens // 200))
    noise, mix = rng.choice((0.0, 0.0, 0.3, 1.0)), rng.choice(MIXES)
    each = 8 + 5 * mix[0] + 7 * noise
    room = tokens - 19 * asks - 30
    count = max(asks, min(int((room - 3 * (room / each) ** 0.5) / each), len(ADJECTIVES) * len(NOUNS)))
    lines, records = notes(rng, count, noise, mix)
    messages = [user("Read these notes.\n" + "\n".join(lines)), assistant(READ)]
    for q, a in rng.sample(records, asks):
        messages += [user(q), assistant(a)]
    return Item("recall", messages)


def short(rng):
    """A few notes and one or two questions in one message."""
    lines, records = notes(rng, rng.randint(2, 16), 0.2, rng.choice(MIXES))
    (q, a), more = records[rng.randrange(len(records))], rng.sample(records, min(2, len(records)))
    messages = [user("Read these notes.\n" + "\n".join(lines) + "\n" + q), assistant(a)]
    for q, a in more[:rng.randint(0, 2)]:
        messages += [user(q), assistant(a)]
    return Item("recall", messages)
