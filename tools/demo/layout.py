"""How documents lie in a batch: packed back to back as N rows of tokens; long ones, all of one length, at the end."""
import torch


class Layout:
    """starts: first row of each document, N last. Rows from `long_start` on are documents of exactly `long_len` tokens."""

    def __init__(self, starts, device="cpu", long_start=None, long_len=0, pos=None):
        self.starts = [int(s) for s in starts]
        self.n = self.starts[-1]
        self.cpu = torch.tensor(self.starts, dtype=torch.int32)
        self.cu = self.cpu.to(device, non_blocking=True)
        self.lengths = [b - a for a, b in zip(self.starts, self.starts[1:])]
        self.longest = max(self.lengths)
        self.long_start = self.n if long_start is None else long_start
        self.long_len = long_len
        if pos is None:
            pos = torch.cat([torch.arange(n, dtype=torch.int32) for n in self.lengths])
        self.pos = pos.to(device, non_blocking=True)
        self.device = device
        self._index = None

    def short_part(self):
        """(cu, longest) of the documents before long_start."""
        count = sum(1 for s in self.starts[:-1] if s < self.long_start)
        return self.cu[:count + 1], max(self.lengths[:count], default=0)

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
