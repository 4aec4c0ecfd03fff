"""Token ids for the golden texts, from the vocabulary in a GGUF file: byte-level BPE by Hugging Face's tokenizers library,
SentencePiece-style BPE by a plain implementation below. Special tokens in the text are recognised.
"""
import heapq
import re

from gguf import TokenType
from tokenizers import Tokenizer, models, pre_tokenizers

SPACE = "\u2581"


class Bpe:
    """tokenizer.ggml.model "gpt2" with the pre-tokenizer "smollm": digits alone, then GPT-2's words."""

    def __init__(self, file):
        tokens = file.key("tokenizer.ggml.tokens")
        assert file.key("tokenizer.ggml.pre") == "smollm"
        merges = [tuple(m.split(" ")) for m in file.key("tokenizer.ggml.merges")]
        self.tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        types = file.key("tokenizer.ggml.token_type")
        self.tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == TokenType.CONTROL])

    def encode(self, text):
        return self.tokenizer.encode(text).ids


class Spm:
    """tokenizer.ggml.model "llama": of all neighbours whose joint is a piece, the one with the highest score is joined first,
    the leftmost of equals; characters that no piece has become bytes."""

    def __init__(self, file):
        tokens, self.scores = file.key("tokenizer.ggml.tokens"), file.key("tokenizer.ggml.scores")
        types = file.key("tokenizer.ggml.token_type")
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.prefix = file.key("tokenizer.ggml.add_space_prefix", True)
        whole = [t for t, kind in zip(tokens, types) if kind in (TokenType.CONTROL, TokenType.USER_DEFINED) and t]
        self.specials = {t for t in whole if types[self.ids[t]] == TokenType.CONTROL}
        self.split = re.compile("(" + "|".join(re.escape(t) for t in sorted(whole, key=len, reverse=True)) + ")")
        self.whole = set(whole)

    def encode(self, text):
        ids, after_special = [], True
        for part in self.split.split(text):
            if part in self.whole:
                ids.append(self.ids[part])
                after_special = part in self.specials
            elif part:
                ids += self.fragment((" " if self.prefix and after_special else "") + part)
                after_special = False
        return ids

    def fragment(self, text):
        pieces = list(text.replace(" ", SPACE))  # None once joined to the piece on its left.
        left, right = list(range(-1, len(pieces) - 1)), list(range(1, len(pieces) + 1))
        queue = []

        def offer(i):
            if 0 <= i and right[i] < len(pieces):
                joint = pieces[i] + pieces[right[i]]
                if joint in self.ids:
                    heapq.heappush(queue, (-self.scores[self.ids[joint]], i, joint))

        for i in range(len(pieces)):
            offer(i)
        while queue:
            _, i, joint = heapq.heappop(queue)
            j = right[i]
            if pieces[i] is None or j >= len(pieces) or pieces[i] + pieces[j] != joint:
                continue  # One of the two was joined to another neighbour since.
            pieces[i], pieces[j], right[i] = joint, None, right[j]
            if right[i] < len(pieces):
                left[right[i]] = i
            offer(left[i])
            offer(i)
        return [token for piece in pieces if piece for token in self.tokens_of(piece)]

    def tokens_of(self, piece):
        return [self.ids[piece]] if piece in self.ids else [self.ids[f"<0x{byte:02X}>"] for byte in piece.encode()]


def make(file):
    return (Spm if file.key("tokenizer.ggml.model") == "llama" else Bpe)(file)


def leading(file):
    """What the vocabulary asks to put before every text."""
    kind = file.key("tokenizer.ggml.model")
    add = file.key("tokenizer.ggml.add_bos_token", kind == "llama")
    return [file.key("tokenizer.ggml.bos_token_id")] if add else []
