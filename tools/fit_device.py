#!/usr/bin/env python3
"""Fits latencies and efficiency curves of a device file to measured tables, and prints them as TOML.

    fit_device.py DEVICE.toml kernels DIR            h100_gemm.csv.gz and the other kernel tables of that folder
    fit_device.py DEVICE.toml profile DIR MODEL TP   dense.csv, per_sequence.csv and attention.csv: latencies by layer

An operation takes latency + the norm of order 3 of operations / (peak * compute efficiency) and bytes / (bandwidth * memory
efficiency), see src/device/device.h. For each latency tried, efficiencies are medians over bins of a factor of 4 in size; the latency with the
smallest mean |log(predicted / measured)| wins. Peaks and bandwidth come from the device file. Beside each table stands the
median and 90th percentile of |predicted / measured - 1| over the rows it was fitted to.
"""
import csv
import gzip
import math
import pathlib
import statistics
import sys
import tomllib

# layers' numbers: width, feed-forward width, heads, KV heads, head width, vocabulary.
MODELS = {"llama-3.1-8b": (4096, 14336, 32, 8, 128, 128256), "qwen3-32b": (5120, 25600, 64, 8, 128, 151936)}
BIN = 4
POINTS_MIN = 5  # Of a bin.
OVERLAP = 3  # Order of the norm, as in src/cost/operation.cc: best of 1.5 to 20 for the products of all three devices.
CACHED_MOST = 4.0  # Efficiency of passes over what is still in a cache.


def rows_of(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def curve_at(curve, size):
    if size <= curve[0][0]:
        return curve[0][1]
    for (low, a), (high, b) in zip(curve, curve[1:]):
        if size <= high:
            return a + (b - a) * math.log(size / low) / math.log(high / low)
    return curve[-1][1]


def fit_curve(points, most):
    bins = {}
    for size, efficiency in points:
        bins.setdefault(math.floor(math.log(size, BIN)), []).append((size, efficiency))
    return [(math.exp(statistics.mean(math.log(size) for size, _ in members)), min(most, statistics.median(e for _, e in members)))
            for _, members in sorted(bins.items()) if len(members) >= POINTS_MIN] or [(1.0, 0.7)]


def predict(sample, fit, peak, bandwidth):
    flops, size, _ = sample
    latency, compute, memory = fit
    parts = (flops / (peak * curve_at(compute, flops)) if flops else 0, size / (bandwidth * curve_at(memory, size)))
    return latency + 1e6 * sum(part**OVERLAP for part in parts) ** (1 / OVERLAP)


def fit_samples(samples, peak, bandwidth):
    """samples: [(operations, bytes, us)]. @return (latency us, compute curve, memory curve)"""
    cached = CACHED_MOST if not any(flops for flops, _, _ in samples) else 1.0
    fastest = sorted(us for _, _, us in samples)[len(samples) // 200]
    best, best_error = None, math.inf
    for share in [0.02 * i for i in range(1, 50)]:
        latency = share * fastest
        usable = [s for s in samples if s[2] > 1.05 * latency]
        memory = [(size, size / bandwidth * 1e6 / (us - latency)) for flops, size, us in usable if size / bandwidth > 1.5 * flops / peak]
        compute = [(flops, flops / peak * 1e6 / (us - latency)) for flops, size, us in usable if flops and flops / peak > size / bandwidth]
        fit = (latency, fit_curve(compute, 1.0), fit_curve(memory, cached))
        error = statistics.mean(abs(math.log(predict(s, fit, peak, bandwidth) / s[2])) for s in samples)
        if error < best_error:
            best, best_error = fit, error
    return best


def show(name, samples, peak, bandwidth):
    fit = fit_samples(samples, peak, bandwidth)
    errors = sorted(abs(predict(s, fit, peak, bandwidth) / s[2] - 1) for s in samples)
    print(f"[processor.{name}]")
    print(f"# {len(samples)} rows; error: median {100 * errors[len(errors) // 2]:.1f} %, p90 {100 * errors[len(errors) * 9 // 10]:.1f} %")
    print(f"latency_us = {fit[0]:.2f}")
    for key, curve in (("compute_efficiency", fit[1]), ("memory_efficiency", fit[2])):
        print(f"{key} = [{', '.join(f'[{size:.2g}, {efficiency:.3g}]' for size, efficiency in curve)}]")
    print()
    return fit


def fastest_rows(rows, keys, wanted):
    """The fastest kernel for each combination of `keys`. @return {numbers: us}"""
    best = {}
    for row in rows:
        if wanted(row):
            key = tuple(int(row[k]) for k in keys)
            best[key] = min(best.get(key, math.inf), float(row["latency"]) * 1e3)
    return best


def fit_kernels(folder, peaks, bandwidth):
    rows = rows_of(folder / "h100_gemm.csv.gz")
    for name, number, size in (("bf16", "bfloat16", 2), ("fp8", "fp8", 1)):
        best = fastest_rows(rows, "mnk", lambda r, number=number: r["gemm_dtype"] == number)
        samples = [(2 * m * n * k, size * (n * k + m * k) + 2 * m * n, us) for (m, n, k), us in best.items() if n >= 1024 and k >= 1024 and m <= 16384]
        show("matmul" if size == 2 else "matmul.fp8", samples, peaks[name], bandwidth)
    full = lambda r: r["kv_cache_dtype"] == "bfloat16" and r["kernel_source"] == "vllm_flash_attn_fa3" and r["window_size"] == "0"
    best = fastest_rows(rows_of(folder / "h100_context_attention.csv.gz"), ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim"), full)
    samples = [(2 * b * h * d * s * s, 4 * b * s * d * (h + kv), us) for (b, s, h, kv, d), us in best.items() if d in (64, 128) and s >= 16]
    show("prompt_attention", samples, peaks["bf16"], bandwidth)
    best = fastest_rows(rows_of(folder / "h100_generation_attention.csv.gz"), ("batch_size", "step", "num_heads", "num_key_value_heads", "head_dim"), full)
    samples = [(0, 4 * b * kv * d * (s + 1) + 4 * b * h * d, us) for (b, s, h, kv, d), us in best.items() if d in (64, 128)]
    show("decode_attention", samples, peaks["bf16"], bandwidth)
    rows = rows_of(folder / "h100_moe.csv.gz")
    keys = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
    for name, number, size in (("experts", "bfloat16", 2), ("experts.fp4", "w4a16_mxfp4", 17 / 32)):
        best = fastest_rows(rows, keys, lambda r, number=number: r["moe_dtype"] == number and r["distribution"] == "balanced" and r["moe_ep_size"] == "1")
        samples = [(6 * t * k * h * i / tp, min(e, t * k) * 3 * h * i / tp * size + 4 * t * k * h, us) for (t, h, i, k, e, tp), us in best.items()]
        show(name, samples, peaks["bf16"], bandwidth)


def fit_mixed(rows, samples_of, fits, peaks, bandwidth):
    """How much a step that also reads prompts reads keys anew: the share of heads beyond the first of a group."""
    best, best_error = 0, math.inf
    for share in [0.02 * i for i in range(51)]:
        errors = []
        for row in rows:
            prompt, decode, group = samples_of(row)
            decode = (decode[0], decode[1] * (1 + share * (group - 1)), 0)
            us = predict(prompt, fits[0], peaks["bf16"], bandwidth) + predict(decode, fits[1], peaks["bf16"], bandwidth)
            errors.append(abs(math.log(us / float(row["time_us"]))))
        if statistics.median(errors) < best_error:
            best, best_error = share, statistics.median(errors)
    print(f"mixed_reread = {best:.2f}  # {len(rows)} rows; median error {100 * best_error:.1f} %")


def fit_profile(folder, model, group, peaks, bandwidth):
    width, ffn, heads, kv_heads, head, vocab = MODELS[model]
    ffn, heads, kv_heads, vocab = ffn // group, heads // group, max(1, kv_heads // group), vocab // group
    matmuls = {"qkv_proj": (width, (heads + 2 * kv_heads) * head), "o_proj": (heads * head, width), "gate_up_proj": (width, 2 * ffn), "down_proj": (ffn, width)}
    passes = {"layernorm": 4 * width, "final_layernorm": 4 * width, "act_fn": 3 * ffn, "rotary_emb": 2 * (heads + 2 * kv_heads) * head, "qk_norm": 2 * (heads + 2 * kv_heads) * head, "embedding": 2 * width}
    dense, elementwise = [], []
    for row in rows_of(folder / "dense.csv"):
        tokens, us = int(row["tokens"]), float(row["time_us"])
        if row["layer"] in matmuls:
            k, n = matmuls[row["layer"]]
            dense.append((2 * tokens * n * k, 2 * (n * k + tokens * (n + k)), us))
        else:
            elementwise.append((0, 2 * tokens * passes[row["layer"]], us))
    for row in rows_of(folder / "per_sequence.csv"):
        count, us = int(row["sequences"]), float(row["time_us"])
        if row["layer"] == "lm_head":
            dense.append((2 * count * vocab * width, 2 * (vocab * width + count * (vocab + width)), us))
    show("matmul", dense, peaks["bf16"], bandwidth)
    show("elementwise", elementwise, peaks["bf16"], bandwidth)

    def samples_of(row):
        chunk, before, decodes, view = (float(row[k]) for k in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"))
        us, heads_bytes = float(row["time_us"]), 4 * kv_heads * head
        prompt = (4 * chunk * (before + (chunk + 1) / 2) * heads * head, (before + chunk) * heads_bytes + 4 * chunk * heads * head, us)
        return prompt, (0, decodes * view * heads_bytes + 4 * decodes * heads * head, us), heads / kv_heads

    rows = rows_of(folder / "attention.csv")
    alone = lambda r, there, absent: float(r[there]) > 0 and float(r[absent]) == 0
    prompt = show("prompt_attention", [samples_of(r)[0] for r in rows if alone(r, "prefill_chunk", "n_decode")], peaks["bf16"], bandwidth)
    decode = show("decode_attention", [samples_of(r)[1] for r in rows if alone(r, "n_decode", "prefill_chunk")], peaks["bf16"], bandwidth)
    mixed = [r for r in rows if float(r["prefill_chunk"]) >= 128 and float(r["n_decode"]) >= 4 and 256 <= float(r["kv_decode"]) <= 4096 and float(r["kv_prefill"]) <= 4096]
    fit_mixed(mixed, samples_of, (prompt, decode), peaks, bandwidth)


def main():
    if len(sys.argv) < 4 or (sys.argv[2] == "profile") != (len(sys.argv) == 6) or sys.argv[2] not in ("kernels", "profile"):
        sys.exit(__doc__)
    device = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())
    peaks = {name: 1e12 * value for name, value in device["processor"][0]["peak_tflops"].items() if name != "source"}
    bandwidth = 1e9 * device["memory"][0]["bandwidth_gb_s"]
    folder = pathlib.Path(sys.argv[3])
    if sys.argv[2] == "kernels":
        fit_kernels(folder, peaks, bandwidth)
    else:
        fit_profile(folder, sys.argv[4], int(sys.argv[5]), peaks, bandwidth)


if __name__ == "__main__":
    main()
