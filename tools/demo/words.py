"""The words the demo model knows: one small list per kind of thing. Every task draws from these,
so that a 13M-parameter model spends its capacity on what to do with words, not on how many there are."""

NAMES = ("Anna Ben Carla David Emma Felix Grace Hugo Iris Jack Karen Leo Maria Nina Oscar Paula Quinn "
         "Rosa Sam Tara Uma Victor Wendy Yusuf Zoe Adam Bella Chen Diana Erik").split()
PLACES = ("kitchen garden park school office market library station garage bathroom bedroom cellar "
          "museum harbour forest beach bakery hospital theatre tower").split()
OBJECTS = ("ball book key lamp apple box cup hat coin map rope pen bag bottle letter ring clock knife "
           "spoon flute candle basket camera umbrella").split()
TIMES = "morning|noon|afternoon|evening|night".split("|")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
COLOURS = "red green blue yellow black white orange purple".split()
SHAPES = "circle square triangle cross diamond ring".split()
CITIES = ("Oslo Paris Rome Cairo Lima Tokyo Delhi Berlin Madrid Lisbon Dublin Vienna Prague Athens Boston "
          "Quito Nairobi Seoul Geneva Bergen").split()
ADJECTIVES = ("amber ancient bitter bold brave bright broken calm clever cold crimson curious dark deep dusty "
              "eager early empty fair fancy fast fierce gentle giant golden grand grey happy heavy hidden "
              "hollow icy idle jolly keen kind late lazy light little lonely loud lucky mad mild modern "
              "narrow noble odd old pale plain polite proud quick quiet rapid rare rough royal rusty sharp "
              "shy silent silver simple slow small smooth soft solid steady strange strong sunny sweet swift "
              "tall tender thin tiny tired warm wild wise young").split()
NOUNS = ("falcon tiger river mountain window bridge castle engine forest garden island jacket kettle ladder "
         "mirror needle ocean pencil rabbit saddle table valley wagon wolf anchor barrel button canyon carpet "
         "cherry comet copper desert dragon eagle feather fiddle flower fountain ginger glacier hammer harvest "
         "helmet horse igloo jungle kitten lantern lemon lizard magnet marble meadow melon monkey nest onion "
         "otter oyster panda parrot pepper piano pigeon pillow planet pocket prism pumpkin puzzle quartz raven "
         "ribbon robin rocket salmon shadow signal spider spiral sponge squirrel stone summit temple thunder "
         "ticket tomato trumpet tulip tunnel turtle velvet violin walnut whale willow winter zebra").split()
FOODS = "tea coffee soup bread rice pasta pizza salad cake cheese fish honey noodles pancakes juice".split()
PETS = "dog cat horse rabbit parrot turtle hamster goat".split()
JOBS = "teacher doctor baker pilot farmer writer painter nurse driver lawyer builder singer".split()
SPORTS = "tennis football chess swimming running sailing boxing golf hockey climbing".split()
INSTRUMENTS = "piano violin flute guitar drum trumpet".split()

# Words of ordinary first questions; they keep the tokenizer and the chat answers from breaking on plain English.
COMMON = ("a about above after again against all also always am an and animal another answer any are around as ask at "
          "away back bad be because become been before began begin being below best better between big both bring "
          "build but buy by call came can car care carry change child children city clean close code cold colour come "
          "computer could country course cut day did different do does done door down draw drink each earth easy eat "
          "end english enough even ever every example explain eye face fact family far father favourite feel few find "
          "fine first follow food for form found four free friend from full fun game gave get girl give go good got "
          "great green ground group grow had hand happen hard has have he head hear heard hello help her here hi high "
          "him his hold home hot house how i idea if important in into is it its joke just keep kind know language "
          "large last later learn leave left less let letter life light like line list little live long look love "
          "made make man many may me mean men might mind minute miss money moon more most mother move much music must "
          "my name near need never new news next night no north not nothing now number of off often old on once one "
          "only open or order other our out over own page paper part people place plan plant play please poem point "
          "problem question read ready real right river room round run said same sat saw say school sea second see "
          "seen sentence set she should show side sing sister sky sleep slow small so some something song soon sorry "
          "sound south speak spell stand star start state stay still stop story street study such sun sure table take "
          "talk teach tell than thank thanks that the their them then there these they thing think this those thought "
          "three through time to today together told tomorrow too took town translate travel tree true try turn two "
          "under understand until up us use very wait walk want war was watch water way we weather week well went "
          "were what when where which while white who whose why will wind wish with without woman wonder word work "
          "world would write wrong year yes yesterday yet you your").split()


def coined(rng):
    """A name that is in no list, so that copying a name does not mean knowing it."""
    syllables = "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") for _ in range(rng.randint(1, 3)))
    start = rng.choice(("", "", "a", "e", "i", "o", "u"))
    return (start + syllables + rng.choice(("", "", "n", "r", "s", "l", "th", "ck", "nd"))).capitalize()


def name(rng):
    return coined(rng) if rng.random() < 0.2 else rng.choice(NAMES)


def city(rng):
    return coined(rng) if rng.random() < 0.2 else rng.choice(CITIES)


def names(rng, count):
    """Distinct ones."""
    out = rng.sample(NAMES, count)
    for i in range(count):
        other = coined(rng)
        if rng.random() < 0.15 and other not in out:
            out[i] = other
    return out
