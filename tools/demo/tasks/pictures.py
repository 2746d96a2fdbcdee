"""Pictures of shapes (shape, colour, count, position) and short clips of one shape that moves."""
from item import Item, assistant, user
from scenes import SIZE, Scene
from words import COLOURS, SHAPES

ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
CELL = SIZE / 3
MOVES = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}
FRAMES = 8


def place(cell):
    row, column = divmod(cell, 3)
    if (row, column) == (1, 1):
        return "in the centre"
    if row == 1:
        return f"on the {COLUMNS[column]}"
    if column == 1:
        return f"at the {ROWS[row]}"
    return f"at the {ROWS[row]} {COLUMNS[column]}"


def plural(shape, n):
    return shape if n == 1 else shape + ("es" if shape.endswith("s") else "s")


def picture(rng):
    few = rng.sample(SHAPES, rng.randint(1, 3))
    hues = rng.sample(COLOURS, rng.randint(1, 3))
    cells = rng.sample(range(9), rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6)))
    things = [(rng.choice(few), rng.choice(hues), c) for c in cells]
    scene = Scene.background(rng)
    for shape, hue, cell in things:
        x = (cell % 3 + 0.5) * CELL + rng.uniform(-4, 4)
        y = (cell // 3 + 0.5) * CELL + rng.uniform(-4, 4)
        scene.add(rng, shape, hue, x, y, rng.uniform(10, 15))
    return scene, things


def questions(rng, things):
    out = []
    shapes, hues, both = [t[0] for t in things], [t[1] for t in things], [t[:2] for t in things]
    for shape, hue, cell in things:
        if len(things) == 1:
            out.append((rng.choice(("What shape is this?", "Which shape do you see?", "What do you see?")), f"A {hue} {shape}."
                        if hue != "orange" else f"An {hue} {shape}."))
            out.append((rng.choice(("What colour is it?", "Which colour is it?")), f"{hue.capitalize()}."))
            out.append((rng.choice(("Where is it?", "Where in the picture is it?")), place(cell).capitalize() + "."))
        if shapes.count(shape) == 1:
            out.append((f"What colour is the {shape}?", f"{hue.capitalize()}."))
            out.append((f"Where is the {shape}?", place(cell).capitalize() + "."))
        if hues.count(hue) == 1:
            out.append((f"What shape is {hue}?", f"The {shape}."))
        if both.count((shape, hue)) == 1:
            out.append((f"Where is the {hue} {shape}?", place(cell).capitalize() + "."))
        out.append((f"What is {place(cell)}?", f"A {hue} {shape}." if hue != "orange" else f"An {hue} {shape}."))
    shape, hue = rng.choice(shapes + [rng.choice(SHAPES)]), rng.choice(hues + [rng.choice(COLOURS)])
    out.append((f"How many {plural(shape, 2)} are there?", str(shapes.count(shape))))
    out.append((f"How many {hue} shapes are there?", str(hues.count(hue))))
    out.append((rng.choice(("How many shapes are there?", "How many shapes do you see?")), str(len(things))))
    out.append((f"Is there a {shape}?", "Yes." if shape in shapes else "No."))
    return out


def make(rng, turns=None):
    scene, things = picture(rng)
    asks = questions(rng, things)
    messages = []
    for i, (q, a) in enumerate(rng.sample(asks, min(len(asks), turns or rng.choice((2, 3, 4, 5))))):
        messages += [user(q, scene) if i == 0 else user(q), assistant(a)]
    return Item("pictures", messages)


def clip(rng, turns=None):
    """Eight frames; the shape goes one way at a steady pace."""
    way = rng.choice(list(MOVES))
    dx, dy = MOVES[way]
    shape, hue, size, speed = rng.choice(SHAPES), rng.choice(COLOURS), rng.uniform(9, 15), rng.uniform(3, 8)
    travel = speed * (FRAMES - 1)
    low, high = size + 1, SIZE - size - 1

    def start(d):
        if d == 0:
            return rng.uniform(low, high)
        return rng.uniform(low, high - travel) if d > 0 else rng.uniform(low + travel, high)

    x, y = start(dx), start(dy)
    base, seed = Scene.background(rng), rng.random()
    frames = []
    for k in range(FRAMES):
        frame = base.copy()
        frame.add(None, shape, hue, x + dx * speed * k, y + dy * speed * k, size, seed)
        frames.append(frame)
    asks = [(rng.choice(("Which way does it move?", "Where does it go?", "In which direction does it move?", f"Which way does the {shape} move?")),
             f"It moves {way}.")]
    more = [("What moves?", f"A {hue} {shape}." if hue != "orange" else f"An {hue} {shape}."),
            ("What colour is it?", f"{hue.capitalize()}.")]
    rng.shuffle(more)
    messages = []
    for i, (q, a) in enumerate((asks + more)[:turns or rng.choice((1, 2, 3))]):
        messages += [user(q, frames) if i == 0 else user(q), assistant(a)]
    return Item("clips", messages)
