"""Byte-level BPE with the GLM pipeline: train it on the task texts, write it as tokenizer.json, encode with it.

Digits never merge, so that a number is always read and written digit by digit; words that the tasks use
often become one token. The 36 added tokens follow the base vocabulary, in the order of the real model."""
import collections
import json
import os

import regex

PRETOKEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
            r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ADDED = [
    "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>",
    "<|assistant|>", "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>",
    "<|begin_of_video|>", "<|end_of_video|>", "<|begin_of_audio|>", "<|end_of_audio|>",
    "<|begin_of_transcription|>", "<|end_of_transcription|>",
    "<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>", "<think>", "</think>", "<tool_call>",
    "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>",
    "</arg_value>", "/nothink", "<|begin_of_box|>", "<|end_of_box|>", "<|image|>", "<|video|>",
]
NUM_SPECIAL = 18          # the rest show up in decoded text
VOCAB_SIZE = 2560
BASE_VOCAB = VOCAB_SIZE - len(ADDED)
ID = {token: BASE_VOCAB + i for i, token in enumerate(ADDED)}
PAD = ID["<|endoftext|>"]
EOS = [ID["<|endoftext|>"], ID["<|user|>"], ID["<|observation|>"]]

_split = regex.compile(PRETOKEN)


def byte_alphabet():
    """The printable stand-ins of GPT-2's byte-level scheme: byte -> character."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return table


BYTES = byte_alphabet()
CHARS = {c: b for b, c in BYTES.items()}


def pretokens(text):
    return _split.findall(text)


def _spell(pretoken):
    return tuple(BYTES[b] for b in pretoken.encode("utf-8"))


def train(texts):
    """Merges in order of frequency (ties: the lexically smaller pair), until the base vocabulary is full."""
    counts = collections.Counter()
    for text in texts:
        counts.update(p for p in pretokens(text) if not p[-1].isdigit())
    words = [[list(_spell(p)), n] for p, n in counts.items() if len(p.encode()) > 1 and n >= 3]
    vocab = {BYTES[b]: i for i, b in enumerate(sorted(BYTES, key=lambda b: BYTES[b]))}
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for w, (s, n) in enumerate(words):
        for pair in zip(s, s[1:]):
            pairs[pair] += n
            where[pair].add(w)
    merges = []
    while len(vocab) < BASE_VOCAB and pairs:
        pair = min(pairs, key=lambda p: (-pairs[p], p))
        if pairs[pair] < 1:
            break
        merges.append(pair)
        joined = pair[0] + pair[1]
        vocab.setdefault(joined, len(vocab))
        for w in list(where.pop(pair)):
            s, n = words[w]
            for p in zip(s, s[1:]):
                pairs[p] -= n
                if pairs[p] <= 0:
                    del pairs[p]
                if p != pair:
                    where[p].discard(w)
            out, i = [], 0
            while i < len(s):
                if i + 1 < len(s) and s[i] == pair[0] and s[i + 1] == pair[1]:
                    out.append(joined)
                    i += 2
                else:
                    out.append(s[i])
                    i += 1
            words[w][0] = out
            for p in zip(out, out[1:]):
                pairs[p] += n
                where[p].add(w)
    if len(vocab) != BASE_VOCAB:
        raise SystemExit(f"only {len(vocab)} of {BASE_VOCAB} base tokens: give the trainer more text")
    return vocab, merges


def document(vocab, merges):
    """tokenizer.json in the Hugging Face layout."""
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [dict(id=ID[t], content=t, single_word=False, lstrip=False, rstrip=False,
                              normalized=False, special=i < NUM_SPECIAL) for i, t in enumerate(ADDED)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PRETOKEN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                  "vocab": vocab, "merges": [list(m) for m in merges]},
    }


def settings():
    """tokenizer_config.json."""
    return {"backend": "tokenizers", "clean_up_tokenization_spaces": False, "do_lower_case": False,
            "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "padding_side": "left",
            "model_max_length": 131072, "remove_space": False, "tokenizer_class": "PreTrainedTokenizerFast",
            "extra_special_tokens": ADDED[:NUM_SPECIAL]}


class Tokenizer:
    def __init__(self, path):
        with open(os.path.join(path, "tokenizer.json"), encoding="utf-8") as f:
            model = json.load(f)["model"]
        self.vocab = model["vocab"]
        self.rank = {tuple(m): i for i, m in enumerate(model["merges"])}
        self.text = {i: t for t, i in self.vocab.items()}
        self.cache = {}

    def _bpe(self, pretoken):
        s = list(_spell(pretoken))
        whole = self.vocab.get("".join(s))
        if whole is not None:
            return [whole]
        while len(s) > 1:
            best = min(range(len(s) - 1), key=lambda i: self.rank.get((s[i], s[i + 1]), 1 << 30))
            if (s[best], s[best + 1]) not in self.rank:
                break
            pair = (s[best], s[best + 1])
            out, i = [], 0
            while i < len(s):
                if i + 1 < len(s) and (s[i], s[i + 1]) == pair:
                    out.append(s[i] + s[i + 1])
                    i += 2
                else:
                    out.append(s[i])
                    i += 1
            s = out
        return [self.vocab[c] for c in s]

    def encode(self, text):
        """Ids of plain text: added tokens are not looked for."""
        out, cache = [], self.cache
        for p in _split.findall(text):
            ids = cache.get(p)
            if ids is None:
                ids = self._bpe(p)
                if len(cache) < 200000:
                    cache[p] = ids
            out += ids
        return out

    def decode(self, ids):
        out, run = [], bytearray()
        for i in list(ids) + [None]:
            if i is not None and i < BASE_VOCAB:
                run += bytes(CHARS[c] for c in self.text[int(i)])
                continue
            out.append(run.decode("utf-8", "replace"))
            run = bytearray()
            if i is not None:
                out.append(ADDED[int(i) - BASE_VOCAB])
        return "".join(out)
