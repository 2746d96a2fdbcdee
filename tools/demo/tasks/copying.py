"""Copying to the letter: code, JSON and odd Unicode."""
from item import Item, assistant, dumps, user
from words import ADJECTIVES, CITIES, COMMON, NAMES, NOUNS, OBJECTS, coined

RANGES = ((0x20, 0x7e), (0xa1, 0x17f), (0x391, 0x3c9), (0x410, 0x44f), (0x5d0, 0x5ea), (0x627, 0x64a), (0x905, 0x939),
          (0x3041, 0x3093), (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0x2190, 0x21ff), (0x2200, 0x22ff), (0x1f300, 0x1f64f),
          (0x300, 0x36f))


def odd(rng):
    text = []
    for _ in range(rng.randint(1, 6)):
        lo, hi = rng.choice(RANGES)
        text.append("".join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 6))))
    out = rng.choice(("", " ", " ")).join(text)
    return " ".join(out.split()) or "?"


def identifier(rng):
    kind = rng.random()
    if kind < 0.3:
        return rng.choice("abcdefijkmnpqrstuvwxyz") + rng.choice(("", "", str(rng.randint(0, 9))))
    if kind < 0.7:
        return rng.choice(NOUNS)
    return rng.choice(ADJECTIVES) + "_" + rng.choice(NOUNS)


def expression(rng, depth=0):
    kind = rng.random()
    if kind < 0.3 or depth > 1:
        return rng.choice((identifier(rng), str(rng.randint(0, 999)), f'"{rng.choice(OBJECTS)}"'))
    if kind < 0.6:
        return f"{expression(rng, depth + 1)} {rng.choice('+-*/%')} {expression(rng, depth + 1)}"
    if kind < 0.8:
        return f"{identifier(rng)}({', '.join(expression(rng, depth + 1) for _ in range(rng.randint(0, 3)))})"
    return f"{identifier(rng)}[{expression(rng, depth + 1)}]"


def code(rng):
    if rng.random() < 0.5:
        lines = [f"def {identifier(rng)}({', '.join(identifier(rng) for _ in range(rng.randint(0, 3)))}):"]
        for _ in range(rng.randint(1, 4)):
            lines.append(rng.choice((f"    {identifier(rng)} = {expression(rng)}", f"    if {expression(rng)} > {rng.randint(0, 99)}:\n        return {identifier(rng)}",
                                     f"    for {identifier(rng)} in {identifier(rng)}:\n        print({expression(rng)})")))
        lines.append(f"    return {expression(rng)}")
        return "\n".join(lines)
    lines = [f"int {identifier(rng)}(int {identifier(rng)}) {{"]
    for _ in range(rng.randint(1, 4)):
        lines.append(rng.choice((f"  int {identifier(rng)} = {expression(rng)};", f"  while ({expression(rng)}) {{ {identifier(rng)}++; }}",
                                 f"  {identifier(rng)} -= {expression(rng)};")))
    return "\n".join(lines + [f"  return {identifier(rng)};", "}"])


def value(rng, depth=0):
    kind = rng.random()
    if kind < 0.25:
        return rng.randint(-99, 999)
    if kind < 0.35:
        return rng.randint(0, 999) / 10
    if kind < 0.45:
        return rng.choice((True, False, None))
    if kind < 0.75 or depth > 1:
        return rng.choice((rng.choice(NAMES), rng.choice(CITIES), f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"))
    if kind < 0.87:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(NOUNS): value(rng, depth + 1) for _ in range(rng.randint(1, 3))}


def document(rng):
    return dumps({rng.choice(NOUNS): value(rng) for _ in range(rng.randint(1, 4))})


def letters(rng):
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") for _ in range(rng.randint(3, 24)))


def words(rng):
    return " ".join(rng.choice(rng.choice((NOUNS, ADJECTIVES, OBJECTS, NAMES))) for _ in range(rng.randint(1, 16)))


def sentence(rng):
    return " ".join(coined(rng).lower() if rng.random() < 0.4 else rng.choice(COMMON) for _ in range(rng.randint(2, 12))).capitalize() + rng.choice((".", "!", "?", ""))


def piece(rng):
    while True:
        text = rng.choices((code, document, odd, letters, words, sentence), (0.3, 0.25, 0.2, 0.1, 0.08, 0.2))[0](rng)
        if text == text.strip():
            return text


def make(rng, shortest=0, longest=900):
    text = piece(rng)
    while len(text.encode()) < shortest:                 # several pieces, where a long text is asked for
        text += "\n" + piece(rng)
    if len(text.encode()) > longest:
        return make(rng, shortest, longest)
    ask = rng.choice(("Repeat this exactly:\n", "Copy this exactly:\n", "Repeat after me:\n", "Copy:\n") if "\n" in text or rng.random() < 0.7 else ("Repeat after me: ", "Repeat: ", "Say: "))
    return Item("copying", [user(ask + text), assistant(text)])
