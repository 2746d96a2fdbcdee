"""The generators' rendering against chat_template.jinja, over many drawn conversations: check_template.py [MODEL_DIR]"""
import json
import os
import random
import sys

import jinja2

import mix
from item import pieces
from tokenizer import ADDED, BASE_VOCAB


def rendered(item):
    """What the generators write, with the placeholders of media not yet expanded."""
    text = "".join(ADDED[p - BASE_VOCAB] if isinstance(p, int) else p for p, _ in pieces(item, []))
    picture = "<|begin_of_image|>" + "<|image|>" * 16 + "<|end_of_image|>"
    clip = "<|begin_of_video|>" + "".join(f"{picture}{k:.1f} seconds" for k in range(4)) + "<|end_of_video|>"
    return text.replace(clip, "<|begin_of_video|><|video|><|end_of_video|>").replace(picture, "<|begin_of_image|><|image|><|end_of_image|>")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../../models/demo")
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda v, ensure_ascii=False: json.dumps(v, ensure_ascii=ensure_ascii)
    with open(os.path.join(folder, "chat_template.jinja"), encoding="utf-8") as f:
        template = env.from_string(f.read())
    rng = random.Random(11)
    for i in range(3000):
        item = mix.draw_short(rng)
        kwargs = {} if item.effort == "Max" else {"reasoning_effort": item.effort.lower()}
        got = template.render(messages=item.messages, tools=item.tools, **kwargs)
        want = rendered(item)
        closing = "<|observation|>" if item.messages[-1].get("tool_calls") else "<|user|>"
        assert want.endswith(closing)
        if got != want[:-len(closing)]:
            sys.exit(f"item {i} differs:\n{got}\n---\n{want}")
    print("3000 conversations render alike")


if __name__ == "__main__":
    main()
