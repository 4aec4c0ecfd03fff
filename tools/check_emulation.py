#!/usr/bin/env python3
"""Compares emulated runs with measured ones and prints the errors, worst first.

    check_emulation.py KVIST DATA runs       DATA/vllm_runs: the arrivals and limits of real engine runs, once with the measured profile
                                             (DATA/profiles) and once from the device file alone
    check_emulation.py KVIST DATA steps      the same runs step by step: the time of steps of single tokens alone, by requests in them, from the
                                             engine's series of one second each
    check_emulation.py KVIST DATA serving    DATA/serving_measured.csv: rows that state a precision, as a closed loop at their concurrency
    check_emulation.py KVIST DATA speed TRACE...   emulated seconds per second of this machine, one H100

--json prints one object per line instead. Figures of a phase: relative error of what was emulated against what was measured.
"""
import collections
import csv
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

# Run: device, shape, devices, requests at once, folder of the profile, blocks of KV memory where the engine tells them.
RUNS = {
    "RTX4090_Llama-3.1-8B": ("rtx-4090", "llama-3.1-8b", 1, 256, "RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1"),
    "RTXPRO6000_Qwen3-32B": ("rtx-pro-6000", "qwen3-32b", 2, 128, "RTXPRO6000_Qwen_Qwen3-32B_bf16_tp2"),
}
SHAPES = {"Qwen/Qwen3-32B": "qwen3-32b", "openai/gpt-oss-120b": "gpt-oss-120b", "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b", "meta-llama/Llama-3.1-70B": "llama-3.1-70b"}
WAVES = 5  # Requests of a closed loop, in multiples of its concurrency.


def percentile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def replay(kvist, trace, *flags):
    """@return the JSON that kvist prints, or its complaint"""
    done = subprocess.run([kvist, "replay", "--json", "--trace", *trace, *map(str, flags)], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def write_trace(path, requests):
    """requests: [(seconds, input tokens, output tokens)]"""
    lines = [json.dumps({"timestamp": at * 1e3, "input_length": i, "output_length": o, "hash_ids": []}) for at, i, o in requests]
    path.write_text("\n".join(lines) + "\n")
    return [str(path)]


def figures_of(run):
    return {
        "queued mean": run["queued_ms"]["mean"],
        "scheduled to first token, mean": run["ttft_ms"]["mean"] - run["queued_ms"]["mean"],
        "TTFT mean": run["ttft_ms"]["mean"],
        "TTFT P99": run["ttft_ms"]["p99"],
        "TPOT mean": run["tpot_ms"]["mean"],
        "TPOT P99": run["tpot_ms"]["p99"],
        "end to end mean": run["e2e_ms"]["mean"],
        "end to end P99": run["e2e_ms"]["p99"],
        "output tokens/s": run["output_tokens_per_s"],
    }


def measured_run(requests):
    queued = [r["scheduled_ts"] - r["queued_ts"] for r in requests]
    ttft = [r["first_token_ts"] - r["queued_ts"] for r in requests]
    tpot = [(r["last_token_ts"] - r["first_token_ts"]) / (r["output_toks"] - 1) for r in requests if r["output_toks"] > 1]
    e2e = [r["last_token_ts"] - r["queued_ts"] for r in requests]
    whole = max(r["last_token_ts"] for r in requests) - min(r["queued_ts"] for r in requests)
    spread = lambda values: {"mean": 1e3 * statistics.mean(values), "p99": 1e3 * percentile(values, 0.99)}
    return figures_of({"queued_ms": spread(queued), "ttft_ms": spread(ttft), "tpot_ms": spread(tpot), "e2e_ms": spread(e2e),
                       "output_tokens_per_s": sum(r["output_toks"] for r in requests) / whole})


def check_runs(kvist, data, folder):
    for name, (device, shape, devices, requests_max, profile) in RUNS.items():
        place = data / "vllm_runs" / name
        requests = sorted((json.loads(line) for line in (place / "requests.jsonl").read_text().splitlines()), key=lambda r: r["queued_ts"])
        meta = json.loads((place / "meta.json").read_text())
        begin = requests[0]["queued_ts"]
        trace = write_trace(folder / "run.jsonl", [(r["queued_ts"] - begin, r["input_toks"], r["output_toks"]) for r in requests])
        flags = ["--device", device, "--model", shape, "--tensor-parallel", devices, "--max-requests", requests_max,
                 "--max-batched-tokens", meta["engine_kwargs"]["max_num_batched_tokens"]]
        if blocks := meta.get("kv_cache", {}).get("num_gpu_blocks"):
            flags += ["--blocks", blocks]
        measured = measured_run(requests)
        for source, more in (("profile", ["--profile", data / "profiles" / profile]), ("device file", [])):
            run = replay(kvist, trace, *flags, *more)
            if isinstance(run, str):
                sys.exit(run)
            for phase, value in figures_of(run).items():
                yield {"device": device, "model": shape, "source": source, "phase": phase, "measured": measured[phase], "emulated": value, "error": value / measured[phase] - 1}


def series_without_prompts(place, requests, seconds=3):
    """Consecutive seconds in which no prompt was read and hardly anybody came or went: (requests under way, tokens of context each, seconds of a step)."""
    begin = min(r["queued_ts"] for r in requests)
    window = []
    for row in csv.DictReader((place / "timeseries.csv").open()):
        end = begin + float(row["t"])
        running = context = 0.0  # Integrals over the second.
        for r in requests:
            first, last = r["first_token_ts"], r["last_token_ts"]
            low, high = max(first, end - 1), min(last, end)
            if high > low:
                running += high - low
                context += (high - low) * (r["input_toks"] + 1 + (r["output_toks"] - 1) / (last - first) * ((low + high) / 2 - first))
        tokens = float(row["gen_throughput"])
        if float(row["prompt_throughput"]) > 0 or tokens == 0 or running < 0.9:
            window = []
            continue
        window.append((running, context, tokens))
        if len(window) == seconds:
            running, context, tokens = (sum(column) for column in zip(*window))
            yield running / seconds, context / running, running / tokens
            window = []


def check_steps(kvist, data, folder):
    for name, (device, shape, devices, requests_max, profile) in RUNS.items():
        place = data / "vllm_runs" / name
        requests = [json.loads(line) for line in (place / "requests.jsonl").read_text().splitlines()]
        if json.loads((place / "meta.json").read_text()).get("kv_cache", {}).get("num_gpu_blocks"):
            continue  # Short of memory: requests that were put back are under way and not running.
        for running, context, measured_s in series_without_prompts(place, requests):
            count, tokens = max(round(running), 1), 17
            trace = write_trace(folder / "steps.jsonl", [(0, max(int(context) - tokens // 2, 1), tokens)] * count)
            run = replay(kvist, trace, "--device", device, "--model", shape, "--tensor-parallel", devices, "--max-requests", requests_max,
                         "--profile", data / "profiles" / profile, "--concurrency", count, "--max-batched-tokens", 1 << 15)
            emulated_ms = run["itl_ms"]["p50"]
            yield {"device": device, "model": shape, "source": "profile", "phase": f"{count} requests after {context:.0f}", "measured": 1e3 * measured_s,
                   "emulated": emulated_ms, "error": emulated_ms / (1e3 * measured_s) - 1}


def check_serving(kvist, data, folder):
    for row in csv.DictReader((data / "serving_measured.csv").open()):
        if not row["precision"]:
            continue
        concurrency = int(row["batch_size"])
        trace = write_trace(folder / "row.jsonl", [(0, int(row["isl"]), int(row["osl"]))] * max(WAVES * concurrency, 8))
        # TensorRT-LLM keeps keys and values of the published fp8 files in fp8, as these ask for.
        kv = "fp8" if row["backend"] == "trtllm" and row["precision"] == "fp8" else "bf16"
        run = replay(kvist, trace, "--device", row["system"].removesuffix("_sxm"), "--model", SHAPES[row["model_path"]], "--dtype", row["precision"],
                     "--kv-dtype", kv, "--tensor-parallel", row["tp_size"], "--concurrency", concurrency, "--max-requests", concurrency)
        kind = {"device": row["system"], "model": SHAPES[row["model_path"]], "source": f"{row['backend']} {row['precision']}", "id": row["id"], "tensor_parallel": int(row["tp_size"]), "concurrency": concurrency, "input": int(row["isl"]), "output": int(row["osl"])}
        if isinstance(run, str):
            yield kind | {"phase": "not comparable", "why": run}
            continue
        for phase, measured, emulated in (("TPOT mean", row["silicon_tpot_ms"], run["tpot_ms"]["mean"]), ("TTFT mean", row["silicon_ttft_ms"], run["ttft_ms"]["mean"])):
            if float(measured or 0) > 0:
                yield kind | {"phase": phase, "measured": float(measured), "emulated": emulated, "error": emulated / float(measured) - 1}


def check_speed(kvist, traces):
    for trace in traces:
        begin, cpu_begin = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run = replay(kvist, [trace], "--device", "h100", "--model", "llama-3.1-8b")
        if isinstance(run, str):
            sys.exit(run)
        wall, cpu = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = cpu.ru_utime + cpu.ru_stime - cpu_begin.ru_utime - cpu_begin.ru_stime
        yield {"device": "h100", "model": "llama-3.1-8b", "trace": pathlib.Path(trace).name, "emulated_s": run["duration_s"], "wall_s": wall, "cpu_s": cpu_s, "times_real_time": run["duration_s"] / wall}


def print_groups(rows):
    groups = collections.defaultdict(list)
    for row in rows:
        if "error" in row:
            groups[(row["device"], row["model"], row["source"], row["phase"])].append(row["error"])
    print(f"{'device':<14}{'model':<15}{'source':<14}{'phase':<32}{'rows':>5}{'median':>9}{'|median|':>10}{'worst':>9}")
    key = lambda item: -statistics.median(abs(e) for e in item[1])
    for (device, model, source, phase), errors in sorted(groups.items(), key=key):
        print(f"{device:<14}{model:<15}{source:<14}{phase:<32}{len(errors):>5}{100 * statistics.median(errors):>8.1f}%{100 * statistics.median(map(abs, errors)):>9.1f}%{100 * max(errors, key=abs):>8.1f}%")
    for phase in sorted({phase for *_, phase in groups}):
        errors = [abs(row["error"]) for row in rows if row.get("phase") == phase and "error" in row]
        print(f"all, {phase}: median |error| {100 * statistics.median(errors):.1f} % of {len(errors)} rows")
    for why, count in collections.Counter(row["why"] for row in rows if "why" in row).items():
        print(f"not comparable, {count} rows: {why}")


def main():
    arguments = [a for a in sys.argv[1:] if a != "--json"]
    if len(arguments) < 3 or arguments[2] not in ("runs", "steps", "serving", "speed") or (arguments[2] == "speed") == (len(arguments) == 3):
        sys.exit(__doc__)
    kvist, data, what = arguments[0], pathlib.Path(arguments[1]), arguments[2]
    with tempfile.TemporaryDirectory() as folder:
        check = {"runs": lambda: check_runs(kvist, data, pathlib.Path(folder)), "steps": lambda: check_steps(kvist, data, pathlib.Path(folder)), "serving": lambda: check_serving(kvist, data, pathlib.Path(folder)), "speed": lambda: check_speed(kvist, arguments[3:])}
        rows = list(check[what]())
    if what == "steps" and "--json" not in sys.argv:
        for row in rows:
            print(f"{row['device']:<14}{row['phase']:<28}{row['measured']:>7.1f} ms measured{row['emulated']:>7.1f} ms emulated{100 * row['error']:>+7.1f} %")
    elif "--json" in sys.argv or what == "speed":
        for row in rows:
            print(json.dumps(row))
    else:
        print_groups(rows)


if __name__ == "__main__":
    main()
