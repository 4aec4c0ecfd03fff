#!/usr/bin/env python3
"""How fast arithmetic, memory and links of servers have grown, and where prompts and single tokens lie under the roofs.

    wall.py KVIST DEVICES [PICTURE.svg]     JSON objects: growth, then one per device
"""
import json
import math
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import emulated

SERVERS = {"a100": (2020, "nvlink3"), "h100": (2022, "nvlink4"), "b200": (2024, "nvlink5")}  # Year of sale, link.
DEVICES = ("a100", "h100", "h200", "b200", "mi300x", "l4", "l40s", "rtx-4090", "decode-npu")
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 400, 60, 40
AXES = ((0.1, 1e4), (1e11, 1e16))  # Operations a byte, operations a second.


def growth(values):
    """@return the factor in two years, by least squares of logarithms. values: [(year, figure)]"""
    years, logs = [y for y, _ in values], [math.log(v) for _, v in values]
    mean_year, mean_log = sum(years) / len(years), sum(logs) / len(logs)
    slope = sum((y - mean_year) * (v - mean_log) for y, v in zip(years, logs)) / sum((y - mean_year) ** 2 for y in years)
    return math.exp(2 * slope)


def place(intensity, rate):
    share = [(math.log(v) - math.log(low)) / (math.log(high) - math.log(low)) for v, (low, high) in zip((intensity, rate), AXES)]
    return LEFT + share[0] * (WIDTH - LEFT - 10), HEIGHT - BOTTOM - share[1] * (HEIGHT - BOTTOM - 10)


def picture(rows):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for row in rows:
        corners = [place(AXES[0][0], AXES[0][0] * row["bandwidth"]), place(row["ridge"], row["peak"]), place(AXES[0][1], row["peak"])]
        out.append(f'<polyline fill="none" stroke="gray" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}"/>')
        out.append(f'<text x="{corners[1][0]:.1f}" y="{corners[1][1] - 4:.1f}">{row["device"]}</text>')
        for kind, colour in (("decode", "crimson"), ("prompt", "navy")):
            x, y = place(row[f"{kind}_intensity"], row[f"{kind}_rate"])
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">operations a byte (red: a single token, blue: a prompt of 2,048)</text>')
    out.append(f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">operations a second</text></svg>')
    return "\n".join(out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        lab = emulated.Lab(sys.argv[1], sys.argv[2], folder)
        peak = lambda name: 1e12 * lab.device(name)["processor"][0]["peak_tflops"]["bf16"]
        memory = lambda name: 1e9 * lab.device(name)["memory"][0]["bandwidth_gb_s"]
        print(json.dumps({"what": "growth", "arithmetic": growth([(year, peak(name)) for name, (year, _) in SERVERS.items()]), "memory": growth([(year, memory(name)) for name, (year, _) in SERVERS.items()]),
                          "links": growth([(year, lab.device(f"links/{link}")["bandwidth_gb_s"]) for year, link in SERVERS.values()])}))
        rows = []
        for name in DEVICES:
            both = lab.replay(name, "llama-3.1-8b", [(0, 2048, 65)])
            prompt = lab.replay(name, "llama-3.1-8b", [(0, 2048, 1)])
            # What one token and one prompt of 8.03 billion weights in 16 bits ask for; keys and values beside them are small.
            decode_flops, prompt_flops, weights = 2 * 8.03e9, 2 * 8.03e9 * 2048, 16.06e9
            rows.append({"what": "device", "device": name, "peak": peak(name), "bandwidth": memory(name), "ridge": peak(name) / memory(name),
                         "decode_intensity": decode_flops / weights, "decode_rate": decode_flops / (both["tpot_ms"]["mean"] / 1e3),
                         "prompt_intensity": prompt_flops / weights, "prompt_rate": prompt_flops / (prompt["ttft_ms"]["mean"] / 1e3)})
            rows[-1] |= {"decode_of_peak": rows[-1]["decode_rate"] / peak(name), "prompt_of_peak": rows[-1]["prompt_rate"] / peak(name)}
            print(json.dumps(rows[-1]))
        if len(sys.argv) > 3:
            pathlib.Path(sys.argv[3]).write_text(picture(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
