"""Pictures as small tables of shapes, drawn by numpy here and by torch on the GPU with the same formulas.

A scene is [1 + SLOTS, 7] floats: row 0 is the background (r, g, b); a shape is (kind, x, y, radius, r, g, b),
kind -1 for an empty slot. Edges are smoothed over one pixel."""
import numpy as np

from words import COLOURS, SHAPES

SIZE, SLOTS = 112, 6
RGB = {"red": (215, 40, 40), "green": (40, 160, 60), "blue": (40, 70, 210), "yellow": (240, 210, 40), "black": (20, 20, 20),
       "white": (250, 250, 250), "orange": (245, 140, 30), "purple": (140, 50, 170)}
assert set(RGB) == set(COLOURS)


class Scene:
    def __init__(self, table):
        self.table = table

    @staticmethod
    def background(rng):
        table = np.full((1 + SLOTS, 7), -1.0, np.float32)
        grey = rng.uniform(120, 200)
        table[0, :3] = [grey + rng.uniform(-12, 12) for _ in range(3)]
        return Scene(table)

    def copy(self):
        return Scene(self.table.copy())

    def add(self, rng, shape, hue, x, y, radius, shade=None):
        slot = int((self.table[1:, 0] >= 0).sum()) + 1
        shade = (rng.random() if shade is None else shade) * 16 - 8
        rgb = [min(255.0, max(0.0, c + shade)) for c in RGB[hue]]
        self.table[slot] = [SHAPES.index(shape), x, y, radius, *rgb]


def draw(tables, xp=np):
    """[N, 1 + SLOTS, 7] -> [N, SIZE, SIZE, 3] in 0..255, rounded; xp is numpy or torch."""
    where, absolute = xp.where, xp.abs
    if xp is np:
        clip = lambda v: np.clip(v, 0, 1)
        greater = np.maximum
        grid = np.arange(SIZE, dtype=np.float32) + 0.5
    else:
        clip = lambda v: v.clamp(0, 1)
        greater = xp.maximum
        grid = xp.arange(SIZE, dtype=xp.float32, device=tables.device) + 0.5
    px, py = grid[None, None, :], grid[None, :, None]
    image = tables[:, 0, None, None, :3] + (px * 0 + py * 0)[..., None]
    for s in range(1, 1 + SLOTS):
        kind, x, y, r = (tables[:, s, i][:, None, None] for i in range(4))
        dx, dy = px - x, py - y
        ax, ay = absolute(dx), absolute(dy)
        dist = (dx * dx + dy * dy) ** 0.5
        thin = r * 0.33
        inside = [r - dist,                                              # circle
                  r * 0.9 - greater(ax, ay),                             # square
                  greater(0 - dy - r, greater(dy - r * 0.8, (ax - (dy + r) * 0.6) * 0.86)) * -1,   # triangle, point up
                  greater(thin - greater(ax, ay - r + thin), thin - greater(ax - r + thin, ay)),   # cross
                  (r * 1.1 - (ax + ay)) * 0.7,                           # diamond
                  thin * 0.75 - absolute(dist - r * 0.8)]                # ring
        cover = image[..., 0] * 0
        for k, depth in enumerate(inside):
            cover = where(kind == k, clip(depth + 0.5), cover)
        cover = cover[..., None]
        image = image + (tables[:, s, None, None, 4:7] - image) * cover
    return xp.round(image)


def to_png(scene):
    """PNG bytes of one scene."""
    import io

    from PIL import Image
    pixels = draw(scene.table[None])[0].astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", optimize=True)
    return out.getvalue()
