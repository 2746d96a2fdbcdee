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


SYSTEM = ("You are a helpful assistant.", "Be brief.", "Answer the question.", "You are the demo model of Lathe.", "Think before you answer.",
          "Be polite.")


def draw_short(rng, weights=WEIGHTS):
    item = rng.choices(MAKERS, weights)[0](rng)
    if rng.random() < 0.05:
        item.effort = rng.choice(("Low", "High"))
    if rng.random() < 0.06:
        item.messages.insert(0, {"role": "system", "content": rng.choice(SYSTEM)})
    return item


def draw_long(rng, tokens):
    return recall.make(rng, tokens)
