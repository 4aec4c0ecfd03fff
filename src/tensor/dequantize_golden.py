#!/usr/bin/env python3
"""Writes dequantize_golden.inc: one random block of every type and its values by the `gguf` Python package.

Usage: dequantize_golden.py > dequantize_golden.inc      (needs the packages gguf and numpy)
"""
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "Q2_K", "Q3_K"]
# Where the f16 scales of a block lie: they get sane values, everything else is random.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "IQ4_NL": [0], "IQ4_XS": [0], "Q2_K": [80, 82], "Q3_K": [108]}
SIZES = {"F32": 16, "F16": 8, "BF16": 8, "Q8_0": 34, "Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210,
         "IQ4_NL": 18, "IQ4_XS": 136, "Q2_K": 84, "Q3_K": 110}
# MXFP4 has an exponent instead: a usual one, then those at the ends of the range, one block each.
EXPONENTS = [122, 0, 1, 2, 254, 255]


def wrap(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 118:
            lines.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join(lines + [line])


def main():
    rng = np.random.default_rng(20)
    print("// Made by dequantize_golden.py: stored bytes and the bits of the values they mean.\n")
    for name in TYPES:
        if name in SCALES:
            block = rng.integers(0, 256, SIZES[name], dtype=np.uint8)
            for offset in SCALES[name]:
                block[offset:offset + 2] = np.array([rng.normal() / 8], dtype=np.float16).view(np.uint8)
            values = quants.dequantize(block.reshape(1, -1), Type[name])
        elif name == "MXFP4":
            block = rng.integers(0, 256, (len(EXPONENTS), 17), dtype=np.uint8)
            block[:, 0] = EXPONENTS
            with np.errstate(over="ignore"):  # 12 * 2^127 is infinite.
                values = quants.dequantize(block, Type.MXFP4)
            block = block.reshape(-1)
        elif name == "BF16":
            block = (rng.normal(size=4).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
            values = quants.dequantize(block.reshape(1, -1), Type.BF16)
        else:
            typed = rng.normal(size=4).astype(np.float32 if name == "F32" else np.float16)
            block, values = typed.view(np.uint8), typed
        bits = np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32)
        print(f"constexpr uint8_t k{name}Bytes[] = {{\n{wrap(f'0x{b:02x}' for b in block)}\n}};")
        print(f"constexpr uint32_t k{name}Values[] = {{\n{wrap(f'0x{v:08x}' for v in bits)}\n}};\n")


main()
