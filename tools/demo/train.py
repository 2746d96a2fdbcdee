"""Trains the demo model in chained parts: train.py --state DIR --out DIR --seconds S [--total T]

A part resumes from DIR/state.pt if it is there, trains for S seconds, writes the state back and exports the checkpoint to --out.
Progress (seconds trained over --total) drives everything that changes: learning rate, lengths, the indexer's phases.
On a GPU a whole step (forward, backward, optimizer) is one CUDA graph for each length of long documents and each phase."""
import argparse
import json
import os
import queue
import shutil
import threading
import time
import traceback

import torch

import batches
import checkpoint
import config
import mix
import scenes
from layout import FixedLayout, Layout
from model import Model
from optimizer import Optimizer
from vision import patches

TEACH, SPARSE, COOL = 0.55, 0.80, 0.45      # progress at which the indexer is taught, is used, and the rate starts to fall
BALANCE = 2e-3                              # step of the router's correction bias
ARRAYS = ("ids", "weight", "task", "pos", "tables", "image_at", "cu", "cu_short", "chunks")


def phase(progress):
    return "dense" if progress < TEACH else "teach" if progress < SPARSE else "sparse"


class Feed:
    """The next batches, in pinned memory."""

    def __init__(self, stream, pinned, depth=6):
        self.stream, self.pinned = stream, pinned
        self.queue = queue.Queue(depth)
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self):
        while True:
            b = self.stream.next()
            tensors = {k: torch.from_numpy(getattr(b, k)) for k in ARRAYS + ("want",)}
            if self.pinned:
                tensors = {k: t.pin_memory() for k, t in tensors.items()}
            self.queue.put((b, tensors))

    def next(self):
        return self.queue.get()


class Buffers:
    """Where a batch lies on the GPU: always at the same addresses."""

    def __init__(self, short, device):
        self.short, self.device, self.held, self.layouts, self.want = short, device, {}, {}, {}

    def load(self, batch, tensors):
        """(layout, tensors by name) of this batch; what an earlier call returned is overwritten."""
        for name, t in tensors.items():
            place = self.want if name == "want" else self.held
            key = batch.long_len if name == "want" else name
            if key not in place:
                place[key] = torch.empty_like(t, device=self.device)
            place[key].copy_(t, non_blocking=True)
        h = self.held
        if batch.long_len not in self.layouts:
            self.layouts[batch.long_len] = FixedLayout(h["pos"], h["cu"], h["cu_short"], h["chunks"], self.short, batch.long_len)
        return self.layouts[batch.long_len], dict(h, want=self.want[batch.long_len])


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
        if self.cuda:                                             # one stream for everything, so that steps can be captured on it
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)
        self.document = config.demo_config()
        self.model = Model(config.shape(self.document)).to(device)
        self.optimizer = Optimizer(self.model, args.muon_lr, args.adam_lr)
        self.render, self.graphs, self.pool, self.buffers = render, {}, None, Buffers(args.short, device)
        self.step, self.seconds = 0, 0.0
        self.wrong = [1.0] * len(mix.TASKS)                       # running share of documents with an error, by task
        if args.init:
            self.model.load_state_dict(checkpoint.load(args.init).state_dict())
            self.step = args.init_step
        path = os.path.join(args.state, "state.pt")
        if os.path.exists(path):
            saved = torch.load(path, map_location=device)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step, self.seconds, self.wrong = saved["step"], saved["seconds"], saved["wrong"]
        if self.cuda:
            self.model.compile()
            self.render = torch.compile(render, dynamic=False)

    def rate(self, progress):
        warm = min(1.0, (self.step - self.args.init_step + 1) / 200)
        if self.args.touch_up:
            return warm * 0.5 * max(0.02, 1 - progress)
        return warm * (1.0 if progress < COOL else max(0.015, (1 - progress) / (1 - COOL)))

    def save(self):
        """The state for the next part, and the checkpoint; both appear whole or not at all."""
        args = self.args
        os.makedirs(args.state, exist_ok=True)
        path = os.path.join(args.state, "state.pt")
        torch.save(dict(model=self.model.state_dict(), optimizer=self.optimizer.state_dict(), step=self.step, seconds=self.seconds, wrong=self.wrong),
                   path + ".new")
        os.replace(path + ".new", path)
        result = checkpoint.save(self.model, args.out + ".new", self.document)
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(os.path.join(args.model, file), args.out + ".new")
        shutil.rmtree(args.out, ignore_errors=True)
        os.rename(args.out + ".new", args.out)
        return result

    def losses(self, layout, b, now):
        model, dtype = self.model, self.dtype
        ids, weight, want = b["ids"].long(), b["weight"], b["want"] if now != "dense" else None
        features = model.visual(self.render(b["tables"]), 8, 8, dtype).flatten(0, 1)
        x = model.embed(ids, features, b["image_at"], dtype)
        mode = "sparse" if now == "sparse" else "dense"
        h, loads, kls = model(x, layout, mode, want)
        total, hit = model.run["losses"](h, model.lm_head, ids.roll(-1), weight)
        inside = torch.cat([layout.pos[1:] > 0, layout.pos.new_zeros(1, dtype=torch.bool)])      # t + 1 is of the same document
        weight2 = weight.roll(-1) * inside
        h2, load, kl = model.draft(h, x.roll(-1, 0), layout, mode, want)
        total2, hit2 = model.run["losses"](h2, model.lm_head, ids.roll(-2), weight2)
        main, mtp = total / weight.sum(), total2 / weight2.sum()
        draft = mtp
        if self.args.chain and now != "dense":                                                  # a second draft, fed by the first
            weight3 = weight2.roll(-1) * inside * inside.roll(-1)
            h3, _, _ = model.draft(h2, x.roll(-2, 0), layout, "dense")
            total3, _ = model.run["losses"](h3, model.lm_head, ids.roll(-3), weight3)
            draft = mtp + 0.5 * total3 / weight3.sum()
        loss, index = main + self.args.mtp * draft, None
        if want is not None:
            index = sum(kls_ for kls_ in kls + [kl] if kls_ is not None)
            loss = loss + index
        return loss, dict(main=main.detach(), mtp=mtp.detach(), index=None if index is None else index.detach(), loads=torch.stack(loads + [load]).detach(),
                          hit=hit, hit2=hit2, weight=weight, weight2=weight2, task=b["task"], layout=layout)

    def whole_step(self, layout, b, now):
        loss, record = self.losses(layout, b, now)
        loss.backward()
        record["norm"] = self.optimizer.step()
        counts = record["loads"]
        steps = BALANCE * self.optimizer.scale * torch.sign(counts.mean(1, keepdim=True) - counts)
        for layer, s in zip([l for l in list(self.model.layers) + [self.model.mtp] if l.sparse_ffn], steps):
            layer.mlp_gate_e_score_correction_bias += s
        return record

    def advance(self, batch, tensors, now):
        """One step; the first of its kind runs as it is, the second is captured, and later ones are replayed."""
        if not self.cuda:
            layout = Layout(batch.starts, "cpu", batch.long_start, batch.long_len, tensors["pos"])
            return self.whole_step(layout, tensors, now)
        layout, b = self.buffers.load(batch, tensors)
        key = (batch.long_len, now)
        if self.args.eager or key not in self.graphs:
            self.graphs[key] = None
            return self.whole_step(layout, b, now)
        if self.graphs[key] is None:
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                    record = self.whole_step(layout, b, now)
            except RuntimeError:
                traceback.print_exc()
                print("could not capture the step: going on without graphs", flush=True)
                self.args.eager = True
                for p in self.model.parameters():
                    p.grad = None
                return self.whole_step(layout, b, now)
            self.pool = self.pool or graph.pool()
            self.graphs[key] = (graph, record)
            print(f"captured {key} at step {self.step}", flush=True)
        graph, record = self.graphs[key]
        graph.replay()
        return record

    def by_document(self, record, batch):
        """Share of documents whose every learned token is right, and of learned tokens, by task (nan where there are none)."""
        n, hit, weight, task = len(mix.TASKS), record["hit"], record["weight"], record["task"]
        learned = (weight == 1.0).float()
        document = (record["layout"].pos == 0).cumsum(0) - 1
        zero = torch.zeros(batch.count, device=weight.device)
        wrong, spoken = zero.index_add(0, document, learned * ~hit), zero.index_add(0, document, learned)
        kind = task[torch.from_numpy(batch.starts[:-1]).long().to(task.device)].long()
        count = lambda k, w: torch.bincount(k, w, minlength=n)
        documents = count(kind, ((wrong == 0) & (spoken > 0)).float()) / count(kind, (spoken > 0).float())
        tokens = count(task.long(), learned * hit) / count(task.long(), learned)
        return documents.tolist(), tokens.tolist()

    def adapt(self, stream, documents):
        """Draws the tasks that are mostly right less often, down to a third, and the hard ones up to 1.6 times as often."""
        for i, right in enumerate(documents):
            if right == right:
                self.wrong[i] += 0.2 * (1 - right - self.wrong[i])
            stream.weights[i] = mix.WEIGHTS[i] * min(1.6, max(0.35, (self.wrong[i] / 0.06) ** 0.5))

    def report(self, record, batch, progress, speed, log, stream):
        documents, tokens = self.by_document(record, batch)
        self.adapt(stream, documents)
        learned2, loads = (record["weight2"] == 1.0).float(), record["loads"]
        named = lambda values: {t: round(v, 4) for t, v in zip(mix.TASKS, values) if v == v}
        line = dict(step=self.step, seconds=round(self.seconds, 1), progress=round(progress, 4), loss=round(float(record["main"]), 4),
                    mtp=round(float(record["mtp"]), 4), index=None if record["index"] is None else round(float(record["index"]), 4),
                    norm=round(float(record["norm"]), 3), draft=round(float((learned2 * record["hit2"]).sum() / learned2.sum()), 4),
                    balance=round(float((loads.max(1).values / loads.mean(1)).max()), 2), long=batch.long_len, tokens_per_s=speed,
                    tokens=named(tokens), documents=named(documents))
        log.write(json.dumps(line) + "\n")
        log.flush()
        if self.step % (4 * self.args.every) == 0 or self.args.steps:
            print(json.dumps(line), flush=True)

    def run(self):
        args = self.args
        stream = batches.Stream(args.model, args.seed, first=self.step, workers=args.workers, short=args.short, long=args.long)
        stream.progress.value = min(1.0, self.seconds / args.total)
        feed = Feed(stream, self.cuda)
        with open(args.log or args.out + ".jsonl", "a", encoding="utf-8") as log:
            begin, earlier, first, warm, saved = time.time(), self.seconds, self.step, None, time.time()
            mark, marked = begin, self.step
            while time.time() - begin < args.seconds and self.seconds < args.total and (not args.steps or self.step - first < args.steps):
                progress = min(1.0, args.progress if args.progress is not None else self.seconds / args.total)
                stream.progress.value = 1.0 if args.touch_up else progress
                batch, tensors = feed.next()
                self.optimizer.set(self.rate(progress), self.step - args.init_step)
                record = self.advance(batch, tensors, "sparse" if args.touch_up else phase(progress))
                self.step += 1
                if self.step % args.every == 0:
                    if self.cuda:
                        torch.cuda.synchronize()
                    now = time.time()
                    speed = int((self.step - marked) * (args.short + args.long) / (now - mark))
                    mark, marked = now, self.step
                    self.report(record, batch, progress, speed, log, stream)
                    if args.save_every and now - saved > args.save_every:
                        self.save()
                        saved = time.time()
                elif self.cuda:
                    self.stream.synchronize() if self.step - first < 6 else None
                if self.step - first < 6:
                    print(f"step {self.step}: {time.time() - begin:.1f} s", flush=True)
                if warm is None and self.step - first >= 3:           # progress does not count what compiling takes
                    warm = time.time()
                self.seconds = earlier + (time.time() - warm if warm else 0.0)
        stream.close()
        print("saved: %d parameters, %d bytes" % self.save(), f"after {self.step} steps, {self.seconds:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/demo"), help="folder of tokenizer.json")
    parser.add_argument("--state", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--log", help="one JSON line every --every steps; default OUT.jsonl")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--total", type=float, default=1200)
    parser.add_argument("--save-every", type=float, default=0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--progress", type=float, help="pin the progress, for rehearsals")
    parser.add_argument("--init", help="start from a checkpoint folder, without optimizer state")
    parser.add_argument("--init-step", type=int, default=0, help="how many steps the checkpoint of --init has had")
    parser.add_argument("--touch-up", action="store_true", help="a short run on a trained checkpoint: sparse all along, half the rate, falling from the start")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--short", type=int, default=batches.SHORT)
    parser.add_argument("--long", type=int, default=batches.LONG)
    parser.add_argument("--muon-lr", type=float, default=5e-3)
    parser.add_argument("--adam-lr", type=float, default=3e-3)
    parser.add_argument("--mtp", type=float, default=0.3)
    parser.add_argument("--chain", action="store_true", help="teach the second draft once the indexer is taught")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    Trainer(args, device).run()


if __name__ == "__main__":
    main()
