#!/usr/bin/env python3
"""Writes small random models of every architecture and tensor type as GGUF, each with the logits that an independent
implementation computes from them:  make_models.py [--out tests/golden] [NAME ...]

See tests/golden/README.md for the file formats. Deterministic: same versions, same bytes.
"""
import argparse
import math
import pathlib
import zlib

import gguf
import numpy as np
import torch

import oracle

VOCAB = 288         # <unk> <s> </s>, 256 bytes, 29 pieces
LENGTH = 72         # tokens evaluated: four and a half KV blocks, 4.5 windows of the windowed model
POSITIONS = [0, 1, 7, 15, 16, 31, 47, 71]
IDS = 40            # vocabulary entries whose logits are kept at each of the positions
Q = gguf.GGMLQuantizationType

SMALL = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=True, max_position_embeddings=1024)
LLAMA = SMALL | dict(rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
ONE = dict(num_hidden_layers=1)
NARROW = LLAMA | ONE | dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1)
WIDE = LLAMA | ONE | dict(hidden_size=256, intermediate_size=256, num_attention_heads=8, num_key_value_heads=2, head_dim=32)


def rope(kind, **more):
    return dict(rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **more})


EXPERTS = SMALL | dict(rope("default"), num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)
PHI = {k: v for k, v in SMALL.items() if k != "head_dim"}
CONTEXTS = {"phi3_short": 256}  # What the server is opened for, where that is not all that the model was trained for.


def long_rope(original):
    return rope("longrope", partial_rotary_factor=0.75, short_factor=[1.0, 1.0, 1.125, 1.25, 1.375, 1.5],
                long_factor=[1.0, 1.25, 2.0, 5.0, 9.0, 15.0]) | dict(original_max_position_embeddings=original)


# name: (architecture, tensor type of matrices, configuration, what it is there for)
MODELS = {
    "llama": ("llama", Q.F16, LLAMA | dict(tie_word_embeddings=False), "grouped queries, a head of its own"),
    "llama_tied": ("llama", Q.F16, LLAMA | ONE, "the embedding is the head"),
    "llama_head_dim": ("llama", Q.F16, LLAMA | ONE | dict(head_dim=32), "heads wider than width / heads"),
    "llama_linear": ("llama", Q.F16, LLAMA | ONE | rope("linear", factor=4.0), "rope.scaling.type linear"),
    "llama_llama3": ("llama", Q.F16, LLAMA | ONE | dict(head_dim=32) | rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
        "frequency factors in rope_freqs.weight"),
    "llama_yarn": ("llama", Q.F16, LLAMA | ONE | dict(head_dim=32) | rope(
        "yarn", factor=4.0, original_max_position_embeddings=512) | dict(max_position_embeddings=2048), "rope.scaling.type yarn"),
    "qwen2": ("qwen2", Q.F16, SMALL | rope("default"), "biases on queries, keys and values; half-split rotary pairs"),
    "qwen3": ("qwen3", Q.F16, SMALL | dict(head_dim=32) | rope("default"), "norms of each query and key head"),
    "gemma3": ("gemma3", Q.F16, SMALL | dict(
        num_hidden_layers=7, intermediate_size=32, num_key_value_heads=1, sliding_window=16, query_pre_attn_scalar=16,
        rms_norm_eps=1e-6, rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
        "windows of 16 in all layers but the sixth, which has its own scaled rotary base; four norms a layer"),
    "phi3": ("phi3", Q.F16, PHI | rope("default", partial_rotary_factor=0.5) | dict(
        sliding_window=16, intermediate_size=72, tie_word_embeddings=False),
        "fused projections (rows of ffn_up begin inside a group of 16), half of a head rotated, windows of 16"),
    "phi3_long": ("phi3", Q.F16, PHI | ONE | long_rope(64),
                  "the long rotary factors and the magnitude of LongRoPE"),
    "phi3_short": ("phi3", Q.F16, PHI | ONE | long_rope(256),
                   "the short rotary factors: opened for a context of 256"),
    "qwen3moe": ("qwen3moe", Q.F16, EXPERTS, "two of eight experts"),
    "qwen3moe_all": ("qwen3moe", Q.F16, EXPERTS | ONE | dict(num_experts=4, num_experts_per_tok=4, norm_topk_prob=False),
                     "every expert, weights not normalised"),
    "qwen3moe_one": ("qwen3moe", Q.F16, EXPERTS | ONE | dict(num_experts=5, num_experts_per_tok=1, norm_topk_prob=False),
                     "one expert of five, weighted by its probability"),
    "qwen3moe_q4_0": ("qwen3moe", Q.Q4_0, EXPERTS | ONE | dict(num_experts_per_tok=3), "three of eight experts of Q4_0, a router of F32"),
    "f32": ("llama", Q.F32, NARROW, "F32 matrices"),
    "bf16": ("llama", Q.BF16, NARROW, "BF16 matrices"),
    "q8_0": ("llama", Q.Q8_0, LLAMA | ONE, "Q8_0 matrices"),
    "q4_0": ("llama", Q.Q4_0, LLAMA | ONE, "Q4_0 matrices"),
    "q4_1": ("llama", Q.Q4_1, LLAMA | ONE, "Q4_1 matrices"),
    "q5_0": ("llama", Q.Q5_0, LLAMA | ONE, "Q5_0 matrices"),
    "q5_1": ("llama", Q.Q5_1, LLAMA | ONE, "Q5_1 matrices"),
    "q4_k": ("llama", Q.Q4_K, WIDE, "Q4_K matrices"),
    "q5_k": ("llama", Q.Q5_K, WIDE, "Q5_K matrices"),
    "q6_k": ("llama", Q.Q6_K, WIDE, "Q6_K matrices"),
    "q2_k": ("llama", Q.Q2_K, WIDE, "Q2_K matrices"),
    "q3_k": ("llama", Q.Q3_K, WIDE, "Q3_K matrices"),
    "iq4_nl": ("llama", Q.IQ4_NL, LLAMA | ONE, "IQ4_NL matrices"),
    "iq4_xs": ("llama", Q.IQ4_XS, WIDE, "IQ4_XS matrices"),
    "mxfp4": ("llama", Q.MXFP4, LLAMA | ONE, "MXFP4 matrices"),
}


# Types that the library can read but not write.
READ_ONLY = (Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS)


def random_blocks(rng, kind, rows, cols, std):
    """Valid random blocks with mean near 0 and the given deviation; the scales vary from block to block."""
    n = rows * cols // gguf.GGML_QUANT_SIZES[kind][0]
    spread = rng.uniform(0.6, 1.4, n)

    def half(x):
        return x.astype("<f2").view(np.uint8).reshape(n, 2)

    def octets(count):
        return rng.integers(0, 256, (n, count), dtype=np.uint8)

    if kind == Q.Q6_K:  # ql 128, qh 64, scales 16 signed, d: value = d * scale * (q - 32)
        scales = rng.integers(-128, 128, (n, 16), dtype=np.int8)
        d = std * spread * rng.choice([-1.0, 1.0], n) / (74 * 18.5)
        blocks = [octets(128), octets(64), scales.view(np.uint8), half(d)]
    elif kind == Q.Q2_K:  # 16 bytes of scale and minimum, 64 of quants, d, dmin: value = d * scale * q - dmin * minimum
        d = std * spread / 13.9
        blocks = [octets(16), octets(64), half(d), half(d * 1.5)]
    elif kind == Q.Q3_K:  # third bits 32, two bits 64, 12 bytes of 6-bit scales, d: value = d * (scale - 32) * (q - 4)
        d = std * spread * rng.choice([-1.0, 1.0], n) / (18.5 * 2.35)
        blocks = [octets(32), octets(64), octets(12), half(d)]
    elif kind == Q.IQ4_NL:  # d, 16 bytes of codes: value = d * table[code]
        d = std * spread * rng.choice([-1.0, 1.0], n) / 70
        blocks = [half(d), octets(16)]
    elif kind == Q.IQ4_XS:  # d, 6 bytes of 6-bit scales, codes: value = d * (scale - 32) * table[code]
        d = std * spread * rng.choice([-1.0, 1.0], n) / (18.5 * 70)
        blocks = [half(d), octets(6), octets(128)]
    else:  # d, dmin, 12 bytes of 6-bit scales and minima, quants: value = d * scale * q - dmin * minimum
        top = 31 if kind == Q.Q5_K else 15
        d = std * spread / (31.5 * top * 0.45)
        blocks = [half(d), half(d * top / 2), octets(12), octets(32 if kind == Q.Q5_K else 0), octets(128)]
    return np.concatenate(blocks, axis=1).reshape(rows, -1)


def random_parameter(rng, arch, kind, name, shape):
    """Values at a scale where attention is neither flat nor a single peak and logits have a deviation of a few units.
    Sharp attention amplifies the rounding of activations, so models that test a tensor type have a flatter one."""
    if name.endswith("norm.weight"):
        return rng.uniform(0.5, 1.5, shape) - (1 if arch == "gemma3" else 0)
    if name.endswith(".bias"):
        return rng.normal(0, 0.5, shape)
    if name in ("model.embed_tokens.weight", "lm_head.weight"):
        return rng.normal(0, 2 / shape[1] ** 0.5, shape)
    sharp = 1.6 if kind == Q.F16 else 0.9
    gain = sharp if "q_proj" in name or "k_proj" in name else 1.2
    if name.endswith("mlp.gate.weight"):  # A router that is sure, so that rounded activations seldom choose otherwise.
        gain = 2.0 if kind == Q.F16 else 6.0
    return rng.normal(0, gain / shape[-1] ** 0.5, shape)


def stored(rng, kind, name, array):
    """(what the file holds, what that is worth as float32)."""
    if array.ndim == 1 or "ffn_gate_inp" in name:
        return array.astype(np.float32), array.astype(np.float32)
    if kind in READ_ONLY:
        raw = random_blocks(rng, kind, *array.shape, array.std())
    elif kind in (Q.F32, Q.F16):
        raw = array.astype(np.float32 if kind == Q.F32 else np.float16)
        return raw, raw.astype(np.float32)
    else:
        raw = gguf.quants.quantize(array.astype(np.float32), kind)
    return raw, gguf.quants.dequantize(raw, kind)


def llama3_factors(inv_freq, scaled):
    return (inv_freq / scaled).numpy().astype(np.float32)


def write_vocabulary(w):
    pieces = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{i:02X}>".encode() for i in range(256)]
    pieces += ["\u2581".encode()] + [bytes([c]) for c in b"abcdefghijklmnopqrstuvwxyz.,"]
    assert len(pieces) == VOCAB
    T = gguf.TokenType
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(pieces)
    w.add_token_scores([0.0] * 259 + [-float(i) for i in range(29)])
    w.add_token_types([T.UNKNOWN, T.CONTROL, T.CONTROL] + [T.BYTE] * 256 + [T.NORMAL] * 29)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)


def write_keys(w, arch, name, c, kind):
    # llama.cpp expects certain tokens in a vocabulary of a model that calls itself "phi3".
    w.add_name(f"kvist golden {name}".replace("phi3", "fused"))
    w.add_license("apache-2.0")
    w.add_file_type({Q.F32: 0, Q.F16: 1, Q.Q4_0: 2, Q.Q4_1: 3, Q.Q8_0: 7, Q.Q5_0: 8, Q.Q5_1: 9, Q.Q2_K: 10, Q.Q3_K: 11,
                     Q.Q4_K: 14, Q.Q5_K: 16, Q.Q6_K: 18, Q.IQ4_NL: 25, Q.IQ4_XS: 30, Q.BF16: 32, Q.MXFP4: 38}[kind])
    w.add_quantization_version(2)
    w.add_vocab_size(c.vocab_size)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    r = c.rope_parameters
    if arch == "phi3":
        w.add_rope_dimension_count(int(c.hidden_size // c.num_attention_heads * r["partial_rotary_factor"]))
        w.add_sliding_window(c.sliding_window or 0)
    else:
        w.add_key_length(c.head_dim)
        w.add_value_length(c.head_dim)
        w.add_rope_dimension_count(c.head_dim)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    if arch == "qwen3moe":
        w.add_expert_count(c.num_experts)
        w.add_expert_used_count(c.num_experts_per_tok)
        w.add_expert_feed_forward_length(c.moe_intermediate_size)
        if not c.norm_topk_prob:
            w.add_expert_weights_norm(False)
    if arch == "gemma3":
        w.add_sliding_window(c.sliding_window)
        r = r["full_attention"]
    w.add_rope_freq_base(r["rope_theta"])
    if r["rope_type"] in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(r["rope_type"]))
        w.add_rope_scaling_factor(r["factor"])
    if r["rope_type"] in ("yarn", "longrope"):
        w.add_rope_scaling_orig_ctx_len(r["original_max_position_embeddings"])
    if r["rope_type"] == "longrope":
        original = r["original_max_position_embeddings"]
        stretch = c.max_position_embeddings / original
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(original)))


def make(name, out):
    arch, kind, settings, purpose = MODELS[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    config_class, model_class = oracle.CLASSES[arch]
    config = config_class(vocab_size=VOCAB, pad_token_id=0, **settings, **oracle.PLAIN)
    model = model_class(config).double().eval()

    path = out / f"{name}.gguf"
    w = gguf.GGUFWriter(path, arch)
    write_keys(w, arch, name, config, kind)
    write_vocabulary(w)
    if config.rope_parameters.get("rope_type") == "llama3":
        plain = 1.0 / 10000.0 ** (torch.arange(0, config.head_dim, 2).double() / config.head_dim)
        w.add_tensor("rope_freqs.weight", llama3_factors(plain, model.model.rotary_emb.inv_freq.double()))
    if config.rope_parameters.get("rope_type") == "longrope":
        for kind_of_factor in ("long", "short"):
            factors = np.array(config.rope_parameters[f"{kind_of_factor}_factor"], np.float32)
            w.add_tensor(f"rope_factors_{kind_of_factor}.weight", factors)
    state = {}
    for theirs, parameter in model.state_dict().items():
        if theirs == "lm_head.weight" and config.tie_word_embeddings:
            continue
        value = random_parameter(rng, arch, kind, theirs, tuple(parameter.shape))
        names, parts = oracle.gguf_names(arch, theirs), []
        for ours, part in zip(names, oracle.cut(value, len(names))):
            raw, worth = stored(rng, kind, ours, oracle.to_gguf(arch, config, ours, part))
            w.add_tensor(ours, raw, raw_dtype=kind if raw.dtype == np.uint8 else None)
            parts.append(oracle.from_gguf(arch, config, ours, worth))
        state[theirs] = torch.from_numpy(np.array(np.concatenate(parts, axis=-2) if len(parts) > 1 else parts[0],
                                                  dtype=np.float64))
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    oracle.fix_context(model, CONTEXTS.get(name, config.max_position_embeddings))
    write_golden(name, purpose, rng, path, model)


def write_golden(name, purpose, rng, path, model):
    tokens = [1] + rng.integers(3, VOCAB, LENGTH - 1).tolist()
    rows, half = oracle.logits(model, tokens), oracle.logits(model, tokens, half_kv=True)
    assert np.isfinite(rows).all() and rows.std(axis=1).min() > 0.1, "degenerate model"

    # The file read back must be the same model: checks the reader that real_weights.py relies on.
    again, _ = oracle.load(path, CONTEXTS.get(name))
    assert oracle.relative_rms(oracle.logits(again, tokens), rows) < 1e-6, name
    with oracle.Int8Activations(model):
        rounded = oracle.relative_rms(oracle.logits(model, tokens), rows)

    order = np.sort(rows, axis=1)
    ids = sorted(rng.choice(VOCAB, IDS, replace=False).tolist())
    greedy, margins = oracle.greedy(model, tokens[:24], 24)
    golden = {
        "file": path.name, "purpose": purpose, **({"context": CONTEXTS[name]} if name in CONTEXTS else {}), "tokens": tokens,
        "argmax": rows.argmax(axis=1), "argmax_margin": oracle.significant(order[:, -1] - order[:, -2], 4),
        "positions": POSITIONS, "ids": ids,
        "logits": rows[POSITIONS][:, ids], "logits_f16_kv": half[POSITIONS][:, ids],
        "last_state_f16_kv": oracle.last_state(model, tokens),
        "deviation": float(rows.std()), "mean_nll": float(oracle.nll(rows, tokens).mean()),
        "error_f16_kv": oracle.relative_rms(half, rows), "error_int8_activations": rounded,
        "greedy": {"prompt_tokens": 24, "ids": greedy, "margins": margins},
    }
    oracle.write_json(path.with_suffix(".json"), golden)
    print(f"{name:15} {path.stat().st_size:8} bytes  deviation {rows.std():6.3f}  f16 kv {golden['error_f16_kv']:.1e}"
          f"  int8 {rounded:.1e}  distinct argmax {len(set(golden['argmax']))}")


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "tests/golden")
    a.add_argument("names", nargs="*", choices=[[], *MODELS], default=[])
    a = a.parse_args()
    torch.manual_seed(0)
    a.out.mkdir(parents=True, exist_ok=True)
    for name in a.names or MODELS:
        make(name, a.out)


if __name__ == "__main__":
    main()
