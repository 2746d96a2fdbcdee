"""Pillow's answers to what tests/image/pillow_test.cc asks: python3 pillow_oracle.py DIR.

For every image file X in DIR: X.rgb, its pixels as the reference's loader makes them (width and height as two 32-bit
integers, then RGB). For every X with a file X.sizes of lines "WIDTH HEIGHT": X.WIDTHxHEIGHT.rgb, resized by Pillow.
"""

import pathlib
import struct
import sys

from PIL import Image, ImageOps


def put(path, image):
    path.write_bytes(struct.pack("<ii", *image.size) + image.tobytes())


for file in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    if file.suffix not in (".png", ".jpg", ".webp"):
        continue
    image = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
    put(pathlib.Path(f"{file}.rgb"), image)
    sizes = pathlib.Path(f"{file}.sizes")
    for line in sizes.read_text().splitlines() if sizes.exists() else ():
        width, height = map(int, line.split())
        put(pathlib.Path(f"{file}.{width}x{height}.rgb"), image.resize((width, height), Image.BICUBIC))
