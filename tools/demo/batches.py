"""Batches of packed documents: short ones of every task in front, long ones of one length behind; made by worker processes."""
import multiprocessing
import random

import numpy as np

import mix
from item import encode
from scenes import SLOTS
from tokenizer import ID, PAD, Tokenizer

SHORT, LONG = 49152, 16384               # tokens of a batch
LENGTHS = (1024, 4096, 16384)
QUERIES = {1024: 32, 4096: 96, 16384: 320}        # positions of a long document at which the indexer is taught
TOKENS_PER_SLICE = 280                   # room for pictures: 176 of them, slices of clips included, in a whole batch
PROMPT_WEIGHT, LONG_PROMPT_WEIGHT = 0.04, 0.01
IMAGE = ID["<|image|>"]
CHUNK, LONGEST_SHORT = 64, 512           # of the KDA kernels; the sparse layers attend to everything in a short document


def length_shares(progress):
    """How often the long part is of each length: the curriculum."""
    if progress < 0.08:
        return (1.0, 0.0, 0.0)
    if progress < 0.2:
        return (0.5, 0.5, 0.0)
    if progress < 0.35:
        return (0.3, 0.4, 0.3)
    return (0.22, 0.36, 0.42)


class Batch:
    """Arrays of one batch. targets[t] is the token after t; weight 0 where there is none."""

    def __init__(self, short, long):
        n = short + long
        self.ids = np.full(n, PAD, np.int16)
        self.weight = np.zeros(n, np.float32)
        self.task = np.zeros(n, np.uint8)
        self.pos = np.zeros(n, np.int32)
        self.room = max(4, -(-short // TOKENS_PER_SLICE))
        self.tables = np.full((self.room, 2, 1 + SLOTS, 7), -1.0, np.float32)
        self.slices, self.starts = 0, []
        self.documents = short // 60 + 32             # room, the documents of padding included
        self.image_at = []
        self.long_start, self.long_len, self.want = n, 0, None

    def put(self, at, ids, flags, scenes, task, prompt_weight):
        m = len(ids)
        ids, flags = np.asarray(ids, np.int16), np.asarray(flags)
        self.ids[at:at + m] = ids
        self.weight[at:at + m - 1] = np.where(flags[1:], 1.0, np.where(ids[1:] == IMAGE, 0.0, prompt_weight))
        self.task[at:at + m] = mix.TASKS.index(task)
        self.pos[at:at + m] = np.arange(m)
        self.starts.append(at)
        for a, b in scenes:
            self.tables[self.slices, 0], self.tables[self.slices, 1] = a.table, b.table
            self.slices += 1
        if scenes:
            self.image_at.append(at + np.nonzero(ids == IMAGE)[0])


def make(rng, tokenizer, progress, short=SHORT, long=LONG, weights=mix.WEIGHTS):
    b = Batch(short, long)
    at, misses = 0, 0
    while misses < 8:
        item = mix.draw_short(rng, weights)
        ids, flags, scenes = encode(item, tokenizer)
        if at + len(ids) > short or len(ids) > LONGEST_SHORT or len(b.starts) >= b.documents - 24 or b.slices + len(scenes) > b.room:
            misses += 1
            continue
        b.put(at, ids, flags, scenes, item.task, PROMPT_WEIGHT)
        at += len(ids)
    while at < short:                                    # what is left over is padding
        m = min(LONGEST_SHORT, short - at)
        b.starts.append(at)
        b.pos[at:at + m] = np.arange(m)
        at += m
    count = len(b.starts)
    if long:
        length = rng.choices(LENGTHS, length_shares(progress))[0] if long >= LENGTHS[-1] else long
        b.long_start, b.long_len, want = short, length, []
        for at in range(short, short + long, length):
            ids, flags, scenes = encode(mix.draw_long(rng, length), tokenizer)
            b.put(at, ids[:length], flags[:length], scenes, "recall", LONG_PROMPT_WEIGHT)
            b.pos[at:at + length] = np.arange(length)
            spoken = np.nonzero(b.weight[at:at + length] == 1.0)[0]
            q = QUERIES.get(length, 8)
            want.append(np.sort(np.concatenate([np.random.choice(spoken, q - q // 4), np.random.randint(4, length, q // 4)])))
        b.want = np.stack(want).astype(np.int64)
    where = np.concatenate(b.image_at) if b.image_at else np.zeros(0, np.int64)
    b.image_at = np.full(b.room * 16, short + long, np.int64)
    b.image_at[:len(where)] = where
    ends = b.starts[1:] + [short + long]
    b.cu = np.full(b.documents + 1, short + long, np.int32)
    b.cu[:len(b.starts)] = b.starts
    b.cu_short = np.full(b.documents + 1, short, np.int32)
    b.cu_short[:count] = b.starts[:count]
    chunks = [(d, i) for d, (a, e) in enumerate(zip(b.starts, ends)) for i in range(-(-(e - a) // CHUNK))]
    b.chunks = np.tile(np.array([[b.documents - 1, 0]], np.int32), ((short + long) // CHUNK + b.documents, 1))
    b.chunks[:len(chunks)] = chunks
    b.count, b.starts = len(b.starts), np.array(b.starts + [short + long], np.int32)
    return b


def _work(queue, counter, progress, weights, seed, folder, short, long):
    tokenizer = Tokenizer(folder)
    while True:
        with counter.get_lock():
            number = counter.value
            counter.value += 1
        rng = random.Random(f"{seed}/{number}")
        np.random.seed(rng.randrange(1 << 31))
        queue.put((number, make(rng, tokenizer, progress.value, short, long, weights[:])))


class Stream:
    """Batches from `workers` processes; `progress` (0 to 1) steers the curriculum. Batch numbers go on from `first`."""

    def __init__(self, folder, seed, first=0, workers=12, depth=48, short=SHORT, long=LONG):
        context = multiprocessing.get_context("fork")
        self.progress = context.Value("d", 0.0)
        self.counter = context.Value("q", first)
        self.weights = context.Array("d", mix.WEIGHTS)       # of the short tasks; the trainer lowers those that are learned
        self.queue = context.Queue(depth)
        self.processes = [context.Process(target=_work, args=(self.queue, self.counter, self.progress, self.weights, seed, folder, short, long), daemon=True)
                          for _ in range(workers)]
        for p in self.processes:
            p.start()

    def next(self):
        return self.queue.get()[1]

    def close(self):
        for p in self.processes:
            p.terminate()
