"""JSON for a given schema, from a few sentences about a person or a thing."""
from item import Item, assistant, dumps, user
from words import COLOURS, FOODS, INSTRUMENTS, JOBS, MONTHS, NOUNS, OBJECTS, PETS, PLACES, SPORTS, city, name

# attribute: names it may have in a schema, type, values, sentences that say it
STRING, INTEGER, NUMBER, BOOLEAN = "string", "integer", "number", "boolean"
PERSON = {
    "age": (("age", "years"), INTEGER, lambda r: r.randint(5, 99), ("{n} is {v} years old.", "{n} is {v}.")),
    "city": (("city", "home", "lives_in"), STRING, city, ("{n} lives in {v}.", "The home of {n} is {v}.")),
    "job": (("job", "work", "profession"), STRING, lambda r: r.choice(JOBS), ("{n} works as a {v}.", "{n} is a {v}.")),
    "food": (("food", "likes_to_eat", "favourite_food"), STRING, lambda r: r.choice(FOODS), ("{n} likes {v}.", "The favourite food of {n} is {v}.")),
    "sport": (("sport", "hobby"), STRING, lambda r: r.choice(SPORTS), ("{n} loves {v}.", "The sport of {n} is {v}.")),
    "pets": (("pets", "animals"), "array", lambda r: r.sample(PETS, r.randint(1, 3)), ("{n} has these pets: {v}.",)),
    "plays": (("instrument", "plays"), STRING, lambda r: r.choice(INSTRUMENTS), ("{n} plays the {v}.",)),
    "height": (("height", "size"), NUMBER, lambda r: r.randint(110, 205) / 100, ("{n} is {v} m tall.", "The height of {n} is {v} m.")),
    "born": (("month", "born_in"), STRING, lambda r: r.choice(MONTHS), ("{n} was born in {v}.",)),
    "car": (("has_car", "drives"), BOOLEAN, lambda r: r.random() < 0.5, ("{n} has {v} car.",)),
    "children": (("children", "kids"), INTEGER, lambda r: r.randint(0, 5), ("{n} has {v} children.",)),
}
THING = {
    "colour": (("colour", "paint"), STRING, lambda r: r.choice(COLOURS), ("The {n} is {v}.", "The colour of the {n} is {v}.")),
    "price": (("price", "cost"), NUMBER, lambda r: r.randint(10, 999) / 10, ("The {n} costs {v} euros.",)),
    "count": (("count", "stock"), INTEGER, lambda r: r.randint(0, 500), ("There are {v} in stock.", "We have {v} of them.")),
    "place": (("place", "where", "location"), STRING, lambda r: r.choice(PLACES), ("It is kept in the {v}.", "You find it in the {v}.")),
    "owner": (("owner", "belongs_to"), STRING, name, ("It belongs to {v}.", "The owner is {v}.")),
    "new": (("is_new", "new"), BOOLEAN, lambda r: r.random() < 0.5, ("It is {v} new.",)),
    "tags": (("tags", "labels"), "array", lambda r: r.sample(NOUNS, r.randint(1, 3)), ("Its labels are: {v}.",)),
}


def spoken(key, value):
    if key == "car":
        return "a" if value else "no"
    if key == "new":
        return "really" if value else "not"
    return ", ".join(value) if isinstance(value, list) else str(value)


def make(rng):
    table, first = (PERSON, "name") if rng.random() < 0.6 else (THING, "item")
    who = name(rng) if table is PERSON else rng.choice(OBJECTS)
    told = rng.sample(list(table), rng.randint(1, min(6, len(table))))
    values = {k: table[k][2](rng) for k in told}
    sentences = [rng.choice(table[k][3]).format(n=who, v=spoken(k, values[k])) for k in told]
    if table is THING:
        sentences.insert(0, rng.choice((f"This is a {who}.", f"We sell a {who}.")))
    asked = rng.sample(told, rng.randint(1, len(told)))
    fields = [(first, STRING, who)] if rng.random() < 0.8 else []
    fields += [(rng.choice(table[k][0]), table[k][1], values[k]) for k in asked]
    if rng.random() < 0.5:
        rng.shuffle(fields)
    props = {f: {"type": t} if t != "array" else {"type": "array", "items": {"type": "string"}} for f, t, _ in fields}
    schema = {"type": "object", "properties": props, "required": [f for f, _, _ in fields]}
    answer = dumps({f: v for f, _, v in fields})
    text = " ".join(sentences)
    ask = rng.choice(("{t}\nAnswer as JSON with this schema: {s}", "Fill this JSON schema: {s}\nText: {t}", "JSON schema: {s}\n{t}"))
    return Item("json", [user(ask.format(t=text, s=dumps(schema))), assistant(answer)], mark="json")
