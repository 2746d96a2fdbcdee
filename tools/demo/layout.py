"""How documents lie in a batch: packed back to back as N rows of tokens; long ones, all of one length, at the end."""
import torch


class Layout:
    """starts: first row of each document, N last. Rows from `long_start` on are documents of exactly `long_len` tokens."""

    def __init__(self, starts, device="cpu", long_start=None, long_len=0, pos=None):
        self.starts = [int(s) for s in starts]
        self.n = self.starts[-1]
        self.cpu = torch.tensor(self.starts, dtype=torch.int32)
        self.cu = self.cpu.to(device, non_blocking=True)
        self.chunks = None                                   # as FLA's kernels want to list them; None: they work it out themselves
        self.lengths = [b - a for a, b in zip(self.starts, self.starts[1:])]
        self.longest = max(self.lengths)
        self.long_start = self.n if long_start is None else long_start
        self.long_len = long_len
        if pos is None:
            pos = torch.cat([torch.arange(n, dtype=torch.int32) for n in self.lengths])
        self.pos = pos.to(device, non_blocking=True)
        self.device = device
        self._index = None

    def parts(self):
        """(first row, end, starts from the first row on, longest) of the short documents and of the long ones."""
        count = sum(1 for s in self.starts[:-1] if s < self.long_start)
        out = []
        if count:
            out.append((0, self.long_start, self.cu[:count + 1], max(self.lengths[:count])))
        if self.long_start < self.n:
            out.append((self.long_start, self.n, self.cu[count:] - self.long_start, self.long_len))
        return out

    def _rows(self):
        if self._index is None:
            grid = torch.arange(self.longest)
            first = torch.tensor(self.starts[:-1])[:, None]
            length = torch.tensor(self.lengths)[:, None]
            valid = grid[None] < length
            self._index = ((first + torch.minimum(grid[None], length - 1)).to(self.device), valid.to(self.device))
        return self._index

    def to_rows(self, x):
        """[N, ...] -> [documents, longest, ...], padded with zeros at the end."""
        index, valid = self._rows()
        y = x[index]
        return y * valid.view(*valid.shape, *([1] * (y.dim() - 2))).to(y.dtype)

    def from_rows(self, y):
        _, valid = self._rows()
        return y[valid]


class FixedLayout:
    """The same over buffers whose sizes never change, for a step that is a CUDA graph: unused documents are empty and lie at the end,
    and so do the chunks of an empty document that fill up the list."""

    def __init__(self, pos, cu, cu_short, chunks, short, long_len):
        self.pos, self.cu, self.chunks, self.cpu = pos, cu, chunks, None
        self.n, self.long_start, self.long_len = len(pos), short, long_len
        self.cu_short = cu_short
        self.cu_long = torch.arange(0, self.n - short + 1, long_len, dtype=torch.int32, device=pos.device)

    def parts(self):
        return [(0, self.long_start, self.cu_short, 512), (self.long_start, self.n, self.cu_long, self.long_len)]
