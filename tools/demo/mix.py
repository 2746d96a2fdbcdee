"""How often each task is drawn, and the documents of a batch."""
from tasks import about, copying, fill, memory, pictures, recall, stories, sums, tools

# weight: share of documents among the short ones; lengths differ, so these are not shares of tokens. In the order of TASKS.
SHORT = (
    (stories.make, 20),
    (recall.short, 6),
    (sums.arithmetic, 16),
    (sums.sorting, 7),
    (sums.counting, 6),
    (copying.make, 15),
    (tools.make, 15),
    (fill.make, 10),
    (memory.make, 9),
    (about.make, 7),
    (pictures.make, 17),
    (pictures.clip, 5),
)
MAKERS, WEIGHTS = zip(*SHORT)
TASKS = ("stories", "recall", "arithmetic", "sorting", "counting", "copying", "tools", "json", "memory", "lathe",
         "pictures", "clips")


def draw_short(rng, weights=WEIGHTS):
    item = rng.choices(MAKERS, weights)[0](rng)
    if rng.random() < 0.05:
        item.effort = rng.choice(("Low", "High"))
    return item


def draw_long(rng, tokens):
    return recall.make(rng, tokens)
