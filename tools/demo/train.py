"""Trains the demo model in chained parts: train.py --state DIR --out DIR --seconds S [--total T]

A part resumes from DIR/state.pt if it is there, trains for S seconds, writes the state back and exports the checkpoint to --out.
Progress (seconds trained over --total) drives everything that changes: learning rate, lengths, the indexer's phases."""
import argparse
import json
import os
import queue
import shutil
import threading
import time

import torch

import batches
import checkpoint
import config
import mix
import scenes
from layout import Layout
from model import Model
from optimizer import Optimizer
from vision import patches

DISTIL, SPARSE, COOL = 0.55, 0.78, 0.5      # progress at which the indexer is taught, is used, and the rate starts to fall
BALANCE = 2e-3                              # step of the router's correction bias


def rate(progress, step):
    warm = min(1.0, (step + 1) / 200)
    cool = 1.0 if progress < COOL else max(0.02, (1 - progress) / (1 - COOL))
    return warm * cool


class Feed:
    """The next batches, already on the device."""

    def __init__(self, stream, device, depth=4):
        self.stream, self.device = stream, device
        self.queue = queue.Queue(depth)
        self.pinned = str(device).startswith("cuda")
        threading.Thread(target=self.fill, daemon=True).start()

    def move(self, array):
        t = torch.from_numpy(array)
        return t.pin_memory().to(self.device, non_blocking=True) if self.pinned else t

    def fill(self):
        while True:
            b = self.stream.next()
            layout = Layout(b.starts, self.device, b.long_start, b.long_len, torch.from_numpy(b.pos))
            self.queue.put((layout, *(None if a is None else self.move(a) for a in (b.ids, b.weight, b.task, b.tables, b.image_at, b.want))))

    def next(self):
        return self.queue.get()


def render(tables):
    """Scene pairs [S, 2, ...] -> normalised patches [S, 64, 1176]."""
    pixels = scenes.draw(tables.flatten(0, 1), torch)
    return patches(pixels.unflatten(0, (-1, 2)), 14, 2)


class Trainer:
    def __init__(self, args, device):
        self.args, self.device = args, device
        self.cuda = device == "cuda"
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        torch.manual_seed(args.seed)
        self.document = config.demo_config()
        self.model = Model(config.shape(self.document)).to(device)
        self.optimizer = Optimizer(self.model, args.muon_lr, args.adam_lr)
        self.render = render
        self.step, self.seconds = 0, 0.0
        self.wrong = [1.0] * len(mix.TASKS)          # running share of documents with an error, by task
        if args.init:
            self.model.load_state_dict(checkpoint.load(args.init).state_dict())
            self.step, self.seconds = args.init_step, args.init_seconds
        path = os.path.join(args.state, "state.pt")
        if os.path.exists(path):
            saved = torch.load(path, map_location=device)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step, self.seconds, self.wrong = saved["step"], saved["seconds"], saved["wrong"]
        if self.cuda:
            self.model.compile()
            self.render = torch.compile(render, dynamic=False)

    def save(self):
        os.makedirs(self.args.state, exist_ok=True)
        path = os.path.join(self.args.state, "state.pt")
        torch.save(dict(model=self.model.state_dict(), optimizer=self.optimizer.state_dict(), step=self.step, seconds=self.seconds, wrong=self.wrong), path + ".new")
        os.replace(path + ".new", path)
        if os.path.realpath(self.args.model) != os.path.realpath(self.args.out):
            for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
                shutil.copy(os.path.join(self.args.model, file), self.args.out)
        return checkpoint.save(self.model, self.args.out, self.document)

    def losses(self, batch, progress):
        layout, ids, weight, task, tables, image_at, want = batch
        model, dtype = self.model, self.dtype
        ids = ids.long()
        features = model.visual(self.render(tables), 8, 8, dtype).flatten(0, 1)
        x = model.embed(ids, features, image_at, dtype)
        teach = progress >= DISTIL
        mode = "sparse" if progress >= SPARSE else "dense"
        h, loads, kls = model(x, layout, mode, want if teach else None)
        following = ids.roll(-1)
        total, hit = model.run["losses"](h, model.lm_head, following, weight)
        inside = torch.cat([layout.pos[1:] > 0, layout.pos.new_zeros(1, dtype=torch.bool)])      # t + 1 is of the same document
        weight2 = weight.roll(-1) * inside
        h2, load, kl = model.draft(h, x.roll(-1, 0), layout, mode, want if teach else None)
        total2, hit2 = model.run["losses"](h2, model.lm_head, ids.roll(-2), weight2)
        main, mtp = total / weight.sum(), total2 / weight2.sum()
        if self.args.chain and progress >= DISTIL:                                              # a second draft, fed by the first
            inside3 = inside & inside.roll(-1)
            weight3 = weight2.roll(-1) * inside3
            h3, _, _ = model.draft(h2, x.roll(-2, 0), layout, "dense")
            total3, _ = model.run["losses"](h3, model.lm_head, ids.roll(-3), weight3)
            mtp = mtp + 0.5 * total3 / weight3.sum()
        loss = main + self.args.mtp * mtp
        index = None
        if teach:
            index = sum(kls_ for kls_ in kls + [kl] if kls_ is not None)
            loss = loss + index
        return loss, main, mtp, index, loads + [load], (hit, hit2, weight, weight2, task, layout)

    def balance(self, loads, scale):
        layers = [l for l in list(self.model.layers) + [self.model.mtp] if l.sparse_ffn]
        counts = torch.stack(loads)
        steps = BALANCE * scale * torch.sign(counts.mean(1, keepdim=True) - counts)
        for layer, s in zip(layers, steps):
            layer.mlp_gate_e_score_correction_bias += s

    def by_document(self, hit, weight, task, layout):
        """Share of documents whose every learned token is right, and of learned tokens, by task (nan where there are none)."""
        n = len(mix.TASKS)
        learned = (weight == 1.0).float()
        document = (layout.pos == 0).cumsum(0) - 1
        zero = torch.zeros(len(layout.lengths), device=weight.device)
        wrong, spoken = zero.index_add(0, document, learned * ~hit), zero.index_add(0, document, learned)
        kind = task[layout.cu[:-1].long()].long()
        count = lambda k, w: torch.bincount(k, w, minlength=n)
        documents = count(kind, ((wrong == 0) & (spoken > 0)).float()) / count(kind, (spoken > 0).float())
        tokens = count(task.long(), learned * hit) / count(task.long(), learned)
        return documents.tolist(), tokens.tolist()

    def adapt(self, stream, documents):
        """Draws the tasks that are mostly right less often, down to a third, and the hard ones up to 1.6 times as often."""
        for i, right in enumerate(documents):
            if right == right:
                self.wrong[i] += 0.2 * (1 - right - self.wrong[i])
            stream.weights[i] = mix.WEIGHTS[i] * min(1.6, max(0.35, (self.wrong[i] / 0.08) ** 0.5))

    def report(self, record, log, stream):
        hit, hit2, weight, weight2, task, layout = record["hits"]
        documents, tokens = self.by_document(hit, weight, task, layout)
        self.adapt(stream, documents)
        learned2 = (weight2 == 1.0).float()
        named = lambda values: {t: round(v, 4) for t, v in zip(mix.TASKS, values) if v == v}
        line = dict(step=self.step, seconds=round(self.seconds, 1), progress=round(record["progress"], 4), loss=round(float(record["main"]), 4),
                    mtp=round(float(record["mtp"]), 4), index=None if record["index"] is None else round(float(record["index"]), 4),
                    norm=round(float(record["norm"]), 3), draft=round(float((learned2 * hit2).sum() / learned2.sum()), 4),
                    balance=round(float((record["loads"].max(1).values / record["loads"].mean(1)).max()), 2), long=layout.long_len,
                    tokens_per_s=record["speed"], tokens=named(tokens), documents=named(documents))
        log.write(json.dumps(line) + "\n")
        log.flush()
        if self.step % (4 * self.args.every) == 0 or self.args.steps:
            print(json.dumps(line), flush=True)

    def run(self):
        args = self.args
        stream = batches.Stream(args.model, args.seed, first=self.step, workers=args.workers, short=args.short, long=args.long)
        stream.progress.value = min(1.0, self.seconds / args.total)
        feed = Feed(stream, self.device)
        os.makedirs(args.out, exist_ok=True)
        with open(os.path.join(args.out, "train.jsonl"), "a", encoding="utf-8") as log:
            begin, earlier, mark, marked = time.time(), self.seconds, time.time(), self.step
            first, warm = self.step, None                                # progress does not count what compiling takes
            while time.time() - begin < args.seconds and (not args.steps or self.step - first < args.steps):
                progress = min(1.0, args.progress if args.progress is not None else self.seconds / args.total)
                stream.progress.value = progress
                loss, main, mtp, index, loads, hits = self.losses(feed.next(), progress)
                loss.backward()
                scale = rate(progress, self.step)
                norm = self.optimizer.step(scale)
                self.balance(loads, scale)
                self.step += 1
                if self.step % args.every == 0:
                    if self.cuda:
                        torch.cuda.synchronize()
                    now = time.time()
                    speed = int((self.step - marked) * (args.short + args.long) / (now - mark))
                    mark, marked = now, self.step
                    self.report(dict(progress=progress, main=main, mtp=mtp, index=index, norm=norm, loads=torch.stack(loads), hits=hits, speed=speed), log, stream)
                elif self.step - first < 3 and self.cuda:
                    torch.cuda.synchronize()
                    print(f"step {self.step}: {time.time() - begin:.1f} s", flush=True)
                if warm is None and self.step - first >= 3:
                    warm = time.time()
                self.seconds = earlier + (time.time() - warm if warm else 0.0)
        stream.close()
        print("saved: %d parameters, %d bytes" % self.save(), f"after {self.step} steps, {self.seconds:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.path.join(os.path.dirname(__file__), "../../models/demo"), help="folder of tokenizer.json")
    parser.add_argument("--state", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--total", type=float, default=1300)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--progress", type=float, help="pin the progress, for rehearsals")
    parser.add_argument("--init", help="start from a checkpoint folder, without optimizer state")
    parser.add_argument("--init-step", type=int, default=0)
    parser.add_argument("--init-seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--short", type=int, default=batches.SHORT)
    parser.add_argument("--long", type=int, default=batches.LONG)
    parser.add_argument("--muon-lr", type=float, default=5e-3)
    parser.add_argument("--adam-lr", type=float, default=3e-3)
    parser.add_argument("--mtp", type=float, default=0.3)
    parser.add_argument("--chain", action="store_true", help="teach the second draft once the indexer is taught")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    Trainer(args, device).run()


if __name__ == "__main__":
    main()
