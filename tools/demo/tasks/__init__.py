"""The tasks of the demo model. Each module has make(rng, ...) -> Item, seeded and marked by a program."""
