"""Tool calls for given schemas: one call, several, none, and the answer once a result is back.

A family is something that can be asked for: names a tool may have, what its description says, its parameters
(names they may have, type, values), and how people ask. Names are drawn anew for every conversation, so that
the schema has to be read."""
from item import Item, assistant, user
from words import (ADJECTIVES, COLOURS, DAYS, FOODS, INSTRUMENTS, JOBS, NOUNS, OBJECTS, PLACES,
                   SPORTS, city, name)

NO_TOOL = "I have no tool for that."


def one_of(words):
    return lambda rng: rng.choice(words)


def integer(lo, hi):
    return lambda rng: rng.randint(lo, hi)


def decimal(rng):
    return rng.randint(1, 999) / 10


def clock(rng):
    return f"{rng.randint(0, 23):02d}:{rng.choice((0, 15, 30, 45)):02d}"


def mail(rng):
    return f"{name(rng).lower()}@{rng.choice(NOUNS)}.{rng.choice(('org', 'com', 'net'))}"


def message(rng):
    return rng.choice(("I am late", "See you soon", f"Bring the {rng.choice(OBJECTS)}", f"Meet me at the {rng.choice(PLACES)}",
                       f"The {rng.choice(OBJECTS)} is {rng.choice(COLOURS)}", f"Call {name(rng)}"))


def several(words):
    return lambda rng: rng.sample(words, rng.randint(1, 3))


S, I, N, B, L = "string", "integer", "number", "boolean", "array"
CITY = (("city", "place", "location"), S, city)
FAMILIES = {
    "weather": (("get_weather", "weather", "current_weather", "weather_lookup"), "Get the weather for a city.", [CITY],
                ("What is the weather in {0}?", "How is the weather in {0}?", "Weather in {0}, please.")),
    "weather_unit": (("weather_in_unit", "get_temperature", "temperature"), "Get the temperature of a city in a unit.",
                     [CITY, (("unit", "scale"), S, one_of(("celsius", "fahrenheit")))],
                     ("What is the temperature in {0} in {1}?", "Tell me the temperature of {0} in {1}.")),
    "time": (("get_time", "local_time", "time_in", "clock"), "Get the local time of a city.", [CITY],
             ("What time is it in {0}?", "Tell me the time in {0}.")),
    "now": (("now", "current_date", "get_date", "today"), "Get today's date.", [],
            ("What date is it today?", "What day is it?", "Tell me today's date.")),
    "mail": (("send_email", "send_mail", "email"), "Send an email.",
             [(("to", "address", "recipient"), S, mail), (("text", "body", "message"), S, message)],
             ("Send an email to {0}: {1}", "Write to {0}: {1}")),
    "alarm": (("set_alarm", "alarm", "wake_me"), "Set an alarm.", [(("time", "at", "when"), S, clock)],
              ("Set an alarm for {0}.", "Wake me at {0}.")),
    "timer": (("set_timer", "start_timer", "timer"), "Start a timer.", [(("minutes", "duration", "length"), I, integer(1, 90))],
              ("Set a timer for {0} minutes.", "Start a timer of {0} minutes.")),
    "add": (("add", "sum_numbers", "plus"), "Add two numbers.", [(("a", "x", "first"), I, integer(1, 999)), (("b", "y", "second"), I, integer(1, 999))],
            ("Add {0} and {1}.", "Use a tool to add {0} and {1}.")),
    "convert": (("convert_currency", "exchange", "convert"), "Convert an amount of money.",
                [(("amount", "value", "sum"), N, decimal), (("from", "source"), S, one_of(("EUR", "USD", "JPY", "GBP"))),
                 (("to", "target"), S, one_of(("CHF", "SEK", "CAD", "INR")))],
                ("Convert {0} {1} to {2}.", "How much is {0} {1} in {2}?")),
    "light": (("set_light", "light", "switch_light"), "Switch the light of a room on or off.",
              [(("room", "where"), S, one_of(PLACES)), (("on", "state"), B, one_of((True, False)))],
              ("Switch {1} the light in the {0}.", "Turn {1} the light in the {0}.")),
    "play": (("play_music", "play", "start_music"), "Play music of an instrument.", [(("instrument", "style", "kind"), S, one_of(INSTRUMENTS))],
             ("Play some {0} music.", "I want to hear {0} music.")),
    "order": (("order_food", "order", "buy_food"), "Order food.",
              [(("dish", "item", "food"), S, one_of(FOODS)), (("count", "quantity", "number"), I, integer(1, 9))],
              ("Order {1} portions of {0}.", "I want {1} portions of {0}.")),
    "shopping": (("add_to_list", "shopping_list", "remember_items"), "Put things on the shopping list.",
                 [(("items", "things", "list"), L, several(FOODS))],
                 ("Put {0} on the shopping list.", "Add {0} to my shopping list.")),
    "book": (("book_table", "reserve_table", "table"), "Book a table.",
             [(("day", "date"), S, one_of(DAYS)), (("people", "guests", "seats"), I, integer(1, 12))],
             ("Book a table for {1} people on {0}.", "Reserve a table on {0} for {1} people.")),
    "train": (("find_train", "train", "search_trains"), "Find a train between two cities.",
              [(("from", "start", "origin"), S, city), (("to", "end", "destination"), S, city)],
              ("Find a train from {0} to {1}.", "I need a train from {0} to {1}.")),
    "contact": (("find_contact", "phone_number", "lookup_contact"), "Find the phone number of a person.", [(("name", "person", "who"), S, name)],
                ("What is the phone number of {0}?", "Find the number of {0}.")),
    "job": (("find_worker", "search_people", "find_person"), "Find a person with a job in a city.",
            [(("job", "work", "trade"), S, one_of(JOBS)), CITY],
            ("Find a {0} in {1}.", "I need a {0} in {1}.")),
    "score": (("get_score", "score", "last_result"), "Get the last result of a sport.", [(("sport", "game"), S, one_of(SPORTS))],
              ("What was the last result in {0}?", "Tell me the last {0} result.")),
    "paint": (("paint", "set_colour", "colour_object"), "Paint a thing in a colour.",
              [(("thing", "object", "what"), S, one_of(OBJECTS)), (("colour", "paint"), S, one_of(COLOURS))],
              ("Paint the {0} {1}.", "Make the {0} {1}.")),
    "note": (("save_note", "note", "write_note"), "Save a note.", [(("text", "content", "note"), S, message)],
             ("Save a note: {0}", "Write down: {0}")),
}


def spoken(value):
    if value is True or value is False:
        return "on" if value else "off"
    if isinstance(value, list):
        return " and ".join(([", ".join(value[:-1])] if len(value) > 1 else []) + [value[-1]])
    return str(value)


class Tool:
    def __init__(self, rng, family):
        if family == "made_up":
            self.made_up(rng)
            return
        names, self.about, params, self.asks = FAMILIES[family]
        self.name = rng.choice(names)
        self.params = []
        for options, kind, draw in params:
            taken = {p[0] for p in self.params}
            self.params.append((rng.choice([o for o in options if o not in taken]), kind, draw))

    def made_up(self, rng):
        a, b = rng.choice(ADJECTIVES), rng.choice(NOUNS)
        self.name, self.about = f"{a}_{b}", f"Run the {a} {b}."
        kinds = ((S, one_of(COLOURS)), (S, name), (S, city), (I, integer(0, 999)), (N, decimal))
        self.params = [(n, *rng.choice(kinds)) for n in rng.sample(NOUNS, rng.randint(0, 3))]
        with_ = " and ".join(f"{n} {{{i}}}" for i, (n, _, _) in enumerate(self.params))
        self.asks = (f"Run the {a} {b}" + (f" with {with_}." if with_ else "."),)

    def schema(self, rng):
        props = {}
        for key, kind, _ in self.params:
            props[key] = {"type": kind} if kind != L else {"type": L, "items": {"type": S}}
        fn = {"name": self.name, "description": self.about,
              "parameters": {"type": "object", "properties": props, "required": [p[0] for p in self.params]}}
        return {"type": "function", "function": fn}

    def ask(self, rng):
        """(what the user says, the arguments)"""
        values = [draw(rng) for _, _, draw in self.params]
        text = rng.choice(self.asks).format(*(spoken(v) for v in values))
        return text, {p[0]: v for p, v in zip(self.params, values)}


def result(rng):
    return rng.choice((lambda: f"{rng.randint(-10, 40)} degrees", lambda: f"{rng.randint(0, 999)}", lambda: "done",
                       lambda: f"{rng.choice(DAYS)} {clock(rng)}", lambda: f"{rng.choice(COLOURS)} {rng.choice(NOUNS)}",
                       lambda: f"no {rng.choice(NOUNS)} found"))()


def make(rng):
    families = rng.sample(list(FAMILIES) + ["made_up"] * 4, rng.choice((1, 2, 2, 3, 3, 4, 5)))
    tools, seen = [], set()
    for f in families:
        tool = Tool(rng, f)
        if tool.name not in seen:
            seen.add(tool.name)
            tools.append(tool)
    schemas = [t.schema(rng) for t in tools]
    kind = rng.random()
    if kind < 0.15:                                     # nothing fits
        others = [f for f in FAMILIES if f not in families and f[:4] not in {g[:4] for g in families}]
        text, _ = Tool(rng, rng.choice(others)).ask(rng)
        return Item("tools", [user(text), assistant(NO_TOOL)], schemas)
    count = 1 if kind < 0.6 else rng.choice((2, 2, 3))
    asked = [(t, *t.ask(rng)) for t in (rng.choice(tools) for _ in range(count))]
    text = asked[0][1]
    for _, more, _ in asked[1:]:
        text += rng.choice((" Then ", " Also ", " And ")) + more[0].lower() + more[1:] if not more.startswith("I ") else " " + more
    calls = [(t.name, arguments) for t, _, arguments in asked]
    messages = [user(text), assistant("", calls=calls)]
    if rng.random() < 0.3:                              # the results come back
        results = [result(rng) for _ in calls]
        messages += [{"role": "tool", "content": r} for r in results]
        messages.append(assistant(f"The answer is: {results[0]}." if len(results) == 1 else f"The answers are: {'; '.join(results)}."))
        return Item("tools", messages, schemas)
    return Item("tools", messages, schemas, mark="tool_calls")
