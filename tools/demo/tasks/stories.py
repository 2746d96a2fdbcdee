"""Small worlds: people walk between places, take, give and drop things; then questions about where, who and when."""
from item import Item, assistant, user
from words import OBJECTS, PLACES, TIMES, names

GO = ("went to", "walked to", "moved to", "ran to")
TAKE = ("picked up", "took", "found")
DROP = ("dropped", "put down", "left")


class World:
    def __init__(self, rng, steps, most=5):
        self.rng = rng
        self.people = names(rng, rng.randint(2, most))
        self.places = rng.sample(PLACES, rng.randint(3, 6))
        self.things = rng.sample(OBJECTS, rng.randint(1, 4))
        self.at, self.holder, self.left_by, self.thing_at = {}, {}, {}, {}
        self.was = {}                                   # (person, time) -> place
        self.text = []
        timed = rng.random() < 0.3
        hours = iter(TIMES)
        for i in range(steps):
            if timed and i % 3 == 0:
                time = next(hours, None)
                if time:
                    self.morning(time)
                    continue
            self.step()

    def say(self, sentence):
        self.text.append(sentence)

    def move(self, who, place):
        self.at[who] = place

    def morning(self, time):
        who, place = self.rng.choice(self.people), self.rng.choice(self.places)
        self.move(who, place)
        self.was[who, time] = place
        self.say(f"In the {time} {who} was in the {place}." if time != "noon" else f"At noon {who} was in the {place}.")

    def step(self):
        rng = self.rng
        who = rng.choice(self.people)
        mine = [t for t in self.things if self.holder.get(t) == who]
        free = [t for t in self.things if t not in self.holder and (t not in self.thing_at or self.thing_at[t] == self.at.get(who))]
        kind = rng.random()
        if who not in self.at or kind < 0.4:
            place = rng.choice([p for p in self.places if p != self.at.get(who)])
            self.move(who, place)
            self.say(f"{who} {rng.choice(GO)} the {place}.")
        elif kind < 0.7 and free:
            thing = rng.choice(free)
            self.holder[thing] = who
            self.thing_at.pop(thing, None)
            self.say(f"{who} {rng.choice(TAKE)} the {thing}.")
        elif kind < 0.85 and mine:
            thing = rng.choice(mine)
            del self.holder[thing]
            self.left_by[thing], self.thing_at[thing] = who, self.at[who]
            self.say(f"{who} {rng.choice(DROP)} the {thing}.")
        elif mine:
            other = rng.choice([p for p in self.people if p != who])
            thing = rng.choice(mine)
            self.holder[thing] = other
            if other not in self.at:
                self.move(other, self.at[who])
                self.say(f"{other} came to the {self.at[who]}.")
            self.say(f"{who} gave the {thing} to {other}.")
        else:
            place = rng.choice(self.places)
            self.move(who, place)
            self.say(f"{who} {rng.choice(GO)} the {place}.")

    def asks(self):
        """Every question this world can answer: (question, think, answer)."""
        rng, out = self.rng, []
        for who, place in self.at.items():
            out.append((rng.choice((f"Where is {who}?", f"Where is {who} now?", f"Where can I find {who}?", f"In which place is {who}?")), "", f"In the {place}."))
        for thing in self.things:
            q = rng.choice((f"Where is the {thing}?", f"Where is the {thing} now?"))
            if thing in self.holder:
                who = self.holder[thing]
                out.append((q, f"{who} has the {thing}. {who} is in the {self.at[who]}.", f"In the {self.at[who]}."))
            elif thing in self.thing_at:
                who = self.left_by[thing]
                out.append((q, f"{who} left the {thing} in the {self.thing_at[thing]}.", f"In the {self.thing_at[thing]}."))
            if thing in self.holder or thing in self.thing_at:
                q = rng.choice((f"Who has the {thing}?", f"Who is holding the {thing}?"))
                out.append((q, "", f"{self.holder[thing]}." if thing in self.holder else "Nobody."))
        for (who, time), place in self.was.items():
            when = f"in the {time}" if time != "noon" else "at noon"
            out.append((f"Where was {who} {when}?", "", f"In the {place}."))
        for who in self.people:
            mine = [t for t in self.things if self.holder.get(t) == who]
            if mine and rng.random() < 0.4:
                think = ", ".join(f"{t} {i + 1}" for i, t in enumerate(mine))
                out.append((f"How many things does {who} have?", think, str(len(mine))))
        rng.shuffle(out)
        hard = [a for a in out if a[1]]
        if hard and rng.random() < 0.5:                 # what needs two steps comes first half of the time
            out.remove(hard[0])
            out.insert(0, hard[0])
        return out


def make(rng, turns=None, steps=(3, 16), most=5):
    while True:
        world = World(rng, rng.randint(*steps), most)
        asks = world.asks()
        if asks:
            break
    turns = turns or rng.choice((1, 2, 3, 4))
    messages = []
    for i, (q, think, a) in enumerate(asks[:turns]):
        messages += [user(" ".join(world.text) + "\n" + q if i == 0 else q), assistant(a, think)]
    return Item("stories", messages)
