"""One conversation of the training data, and its rendering to token ids as the chat template writes it.

`Item.messages` follows the OpenAI layout; the assistant's turns are what the model learns to write.
Pictures are scenes (see scenes.py): one scene a picture, a list of scenes a clip."""
import dataclasses
import json

from tokenizer import ID

IMAGE_TOKENS = 16                        # a 112 x 112 picture: 8 x 8 patches, merged 2 x 2
CLIP_FPS = 2.0


@dataclasses.dataclass
class Item:
    task: str
    messages: list
    tools: list = None
    mark: str = "exact"                  # how a program marks the last answer: exact, json, tool_calls
    effort: str = "Max"


def user(text, *media):
    if not media:
        return {"role": "user", "content": text}
    parts = [{"type": "video" if isinstance(m, list) else "image", "scene": m} for m in media]
    return {"role": "user", "content": parts + [{"type": "text", "text": text}]}


def assistant(text, think="", calls=None):
    message = {"role": "assistant", "content": text}
    if think:
        message["reasoning_content"] = think
    if calls:
        message["tool_calls"] = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    return message


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


TOOLS_BEFORE = "\n# Tools\n\nYou may call these functions. Each line describes one of them as JSON.\n<tools>\n"
TOOLS_AFTER = ("</tools>\n\nWrite a call like this, one after another if there are several:\n"
               "<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>")


def tools_pieces(tools):
    lines = ""
    for tool in tools:
        fn = tool.get("function", tool)
        fn = {k: v for k, v in fn.items() if k not in ("strict", "defer_loading")}
        lines += "{" + ", ".join(f'"{k}": {dumps(v)}' for k, v in fn.items()) + "}\n"
    yield TOOLS_BEFORE + lines + "</tools>\n\nWrite a call like this, one after another if there are several:\n"
    # the template's example uses the real tags, which the tokenizer turns into their ids
    for piece in ("<tool_call>", "NAME", "<arg_key>", "KEY", "</arg_key>", "<arg_value>", "VALUE", "</arg_value>",
                  "</tool_call>"):
        yield ID.get(piece, piece)


def _media(part, scenes):
    scene = part["scene"]
    picture = [ID["<|begin_of_image|>"]] + [ID["<|image|>"]] * IMAGE_TOKENS + [ID["<|end_of_image|>"]]
    if part["type"] == "image":
        scenes.append((scene, scene))
        yield from picture
        return
    yield ID["<|begin_of_video|>"]
    for k in range(0, len(scene), 2):
        scenes.append((scene[k], scene[k + 1]))
        yield from picture
        yield f"{k / CLIP_FPS:.1f} seconds"
    yield ID["<|end_of_video|>"]


def pieces(item, scenes):
    """Yields (piece, learned): text to encode or one id, and whether the model has to write it."""
    yield ID["[gMASK]"], False
    yield ID["<sop>"], False
    yield ID["<|system|>"], False
    yield "Reasoning Effort: " + item.effort, False
    if item.tools:
        yield ID["<|system|>"], False
        for p in tools_pieces(item.tools):
            yield p, False
    previous = None
    for m in item.messages:
        role = m["role"]
        if role == "user":
            if previous != "assistant":
                yield ID["<|user|>"], False
            if isinstance(m["content"], str):
                yield m["content"], False
            else:
                for part in m["content"]:
                    if part["type"] == "text":
                        yield part["text"], False
                    else:
                        for p in _media(part, scenes):
                            yield p, False
        elif role == "system":
            yield ID["<|system|>"], False
            yield m["content"], False
        elif role == "tool":
            if previous == "user":
                yield ID["<|observation|>"], False
            yield ID["<tool_response>"], False
            yield m["content"], False
            yield ID["</tool_response>"], False
        else:
            yield ID["<|assistant|>"], False
            yield ID["<think>"], False
            if m.get("reasoning_content"):
                yield m["reasoning_content"], True
            yield ID["</think>"], True
            if m["content"]:
                yield m["content"], True
            for call in m.get("tool_calls", ()):
                fn = call["function"]
                yield ID["<tool_call>"], True
                yield fn["name"], True
                for k, v in fn["arguments"].items():
                    yield ID["<arg_key>"], True
                    yield k, True
                    yield ID["</arg_key>"], True
                    yield ID["<arg_value>"], True
                    yield (v if isinstance(v, str) else dumps(v)), True
                    yield ID["</arg_value>"], True
                yield ID["</tool_call>"], True
            # what ends the turn is also what opens the next one
            yield ID["<|observation|>" if m.get("tool_calls") else "<|user|>"], True
        previous = role


def encode(item, tokenizer):
    """(ids, learned flags, scene pairs): flags[i] says whether ids[i] is the model's to write."""
    ids, flags, scenes = [], [], []
    for piece, learned in pieces(item, scenes):
        new = [piece] if isinstance(piece, int) else tokenizer.encode(piece)
        ids += new
        flags += [learned] * len(new)
    return ids, flags, scenes
