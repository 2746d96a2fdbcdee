"""Arithmetic on numbers of up to three digits, sorting and counting, each with a think trace that goes step by step."""
from item import Item, assistant, user
from words import COLOURS, FOODS, NOUNS, OBJECTS, PETS


def held_out(a, b):
    """A fiftieth of all pairs is never trained on."""
    return (a * 7919 + b * 104729) % 50 == 0


def add_trace(a, b):
    """347+285: "7+5=12 4+8+1=13 3+2+1=6", units first, the carry as a third term."""
    steps, carry = [], 0
    while a or b or not steps:
        x, y = a % 10, b % 10
        s = x + y + carry
        steps.append(f"{x}+{y}+{carry}={s}")
        a, b, carry = a // 10, b // 10, s // 10
    return " ".join(steps)


def sub_trace(a, b):
    """532-285: "2-5-0=-7=3" borrows; each step says what is written."""
    steps, borrow = [], 0
    while a or b or not steps:
        x, y = a % 10, b % 10
        s = x - y - borrow
        steps.append(f"{x}-{y}-{borrow}={s}" if s >= 0 else f"{x}-{y}-{borrow}+10={s + 10}")
        a, b, borrow = a // 10, b // 10, int(s < 0)
    return " ".join(steps)


def mul_trace(a, b):
    steps, carry = [], 0
    while a or not steps:
        s = (a % 10) * b + carry
        steps.append(f"{a % 10}*{b}+{carry}={s}")
        a, carry = a // 10, s // 10
    return " ".join(steps)


def pair(rng, held, digits=(1, 2, 3, 3, 3, 3)):
    while True:
        a, b = (rng.randrange(10 ** rng.choice(digits)) for _ in range(2))
        if held_out(a, b) == held:
            return a, b


def problem(rng, held=False, digits=(1, 2, 3, 3, 3, 3)):
    a, b = pair(rng, held, digits)
    kind = rng.random()
    if kind < 0.42:
        sign, think, result = "+", add_trace(a, b), a + b
    elif kind < 0.8:
        if rng.random() < 0.7 or held:
            a, b = max(a, b), min(a, b)
        sign, think, result = "-", sub_trace(max(a, b), min(a, b)), a - b
    else:
        b = b % 10
        sign, think, result = rng.choice("*x"), mul_trace(a, b), a * b
    word = {"+": "plus", "-": "minus"}.get(sign, "times")
    form = rng.random()
    if form < 0.6:
        ask = rng.choice(("What is {a} {s} {b}?", "Compute {a} {s} {b}.", "{a} {s} {b} = ?", "{a} {s} {b}",
                          "How much is {a} {s} {b}?"))
    elif form < 0.8:
        ask, sign = rng.choice(("What is {a} {s} {b}?", "Compute {a} {s} {b}.", "{a} {s} {b}?")), word
    else:
        ask = rng.choice(("What is {a}{s}{b}?", "{a}{s}{b}", "{a}{s}{b}=?"))
    return ask.format(a=a, s=sign, b=b), think, str(result)


def arithmetic(rng, held=False, turns=None, digits=(1, 2, 3, 3, 3, 3)):
    messages = []
    for _ in range(turns or rng.choice((1, 1, 2, 3))):
        q, think, a = problem(rng, held, digits)
        messages += [user(q), assistant(a, think)]
    return Item("arithmetic", messages)


def sorting(rng, length=(3, 8)):
    low = rng.choice((10, 10, 10, 0))
    numbers = rng.sample(range(low, rng.choice((10, 100)) if low == 0 and length[1] < 10 else 100), rng.randint(*length))
    down = rng.random() < 0.25
    tens = {}
    for n in numbers:
        tens.setdefault(n // 10, []).append(n)
    order = sorted(numbers, reverse=down)
    think = "; ".join(f"{t}: " + " ".join(map(str, tens[t])) for t in sorted(tens, reverse=down))
    ask = rng.choice(("Sort these numbers: {}", "Sort: {}", "Put these numbers in order: {}", "Sort {}"))
    if down:
        ask = rng.choice(("Sort these numbers from large to small: {}", "Sort from large to small: {}"))
    return Item("sorting", [user(ask.format(rng.choice((", ", ", ", ", ", " ")).join(map(str, numbers)))), assistant(", ".join(map(str, order)), think)])


def counting(rng):
    pool = list(rng.choice((PETS, COLOURS, FOODS, OBJECTS, NOUNS)))
    kinds = rng.sample(pool, rng.randint(2, 4))
    words = [rng.choice(kinds) for _ in range(rng.randint(3, 14))]
    if rng.random() < 0.7:
        target = rng.choice(kinds)
        think = ", ".join(f"{target} {i + 1}" for i in range(words.count(target)))
        n = words.count(target)
        ask = rng.choice((f"How many times is {target} in this list: ", f"Count the word {target}: "))
        if n > 9:
            return counting(rng)
        return Item("counting", [user(ask + " ".join(words)), assistant(str(n), think or "none")])
    words = words[:9]
    think = ", ".join(f"{w} {i + 1}" for i, w in enumerate(words))
    return Item("counting", [user("How many words are in this list: " + " ".join(words)), assistant(str(len(words)), think)])


def make(rng, held=False):
    kind = rng.random()
    return arithmetic(rng, held) if kind < 0.6 else sorting(rng) if kind < 0.8 else counting(rng)
