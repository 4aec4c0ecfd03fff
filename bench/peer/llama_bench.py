#!/usr/bin/env python3
"""llama-bench for those who have llama.cpp only as the Python package llama-cpp-python: the same flags (of those below),
the same work, the same JSON. Decoding crosses from Python to C once a token, a few microseconds.

  pip install llama-cpp-python==0.3.36
  LLAMA_BENCH="python3 bench/peer/llama_bench.py" node bench/peer/peer.mjs MODEL.gguf
"""
import argparse
import contextlib
import json
import os
import random
import sys
import time

import llama_cpp as ll


@contextlib.contextmanager
def quiet():
    """llama.cpp talks on both streams while it loads."""
    saved, null = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1), os.dup2(null, 2)
    try:
        yield
    finally:
        for fd, kept in enumerate(saved, 1):
            os.dup2(kept, fd)


class Bench:
    def __init__(self, args, tokens_max):
        params = ll.llama_model_default_params()
        params.load_mode = ll.LLAMA_LOAD_MODE_MMAP if args.mmap else ll.LLAMA_LOAD_MODE_NONE
        params.use_extra_bufts = bool(args.repack)
        self.model = ll.llama_model_load_from_file(args.model.encode(), params)
        self.vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        context = ll.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = args.batch * tokens_max, 2048, 512
        context.n_seq_max = args.batch
        context.n_threads = context.n_threads_batch = args.threads
        context.flash_attn_type = 1 if args.flash_attn else 0
        self.context = ll.llama_init_from_model(self.model, context)
        if not self.context:
            sys.exit("no context")
        self.memory = ll.llama_get_memory(self.context)
        self.batch = ll.llama_batch_init(2048, 0, 1)

    def step(self, sequences, position, count, logits):
        """`count` random tokens for each sequence from `position` on."""
        batch, n = self.batch, 0
        for sequence in range(sequences):
            for i in range(count):
                batch.token[n], batch.pos[n], batch.n_seq_id[n] = random.randrange(self.vocab), position + i, 1
                batch.seq_id[n][0] = sequence
                batch.logits[n] = logits and i + 1 == count
                n += 1
        batch.n_tokens = n
        if ll.llama_decode(self.context, batch) != 0:
            sys.exit("llama_decode failed")

    def prompt(self, position, tokens):
        for done in range(0, tokens, 2048):
            count = min(2048, tokens - done)
            self.step(1, position + done, count, done + count == tokens)
        ll.llama_synchronize(self.context)

    def decode(self, sequences, position, tokens):
        for i in range(tokens):
            self.step(sequences, position + i, 1, True)
            ll.llama_synchronize(self.context)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", dest="model", required=True)
    parser.add_argument("-p", dest="prompt", type=int, default=512)
    parser.add_argument("-n", dest="decode", type=int, default=128)
    parser.add_argument("-d", dest="depth", type=int, default=0)
    parser.add_argument("-t", dest="threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", dest="repetitions", type=int, default=5)
    parser.add_argument("-fa", dest="flash_attn", type=int, default=1)
    parser.add_argument("-mmp", dest="mmap", type=int, default=1)
    parser.add_argument("--repack", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1, help="sequences that decode side by side")
    parser.add_argument("-o", dest="output", default="json")
    args = parser.parse_args()
    with quiet():
        ll.llama_backend_init()
        bench = Bench(args, args.depth + max(args.prompt, args.decode) + 1)
    results = []
    for kind, tokens, sequences in (("prompt", args.prompt, 1), ("decode", args.decode, args.batch)):
        if tokens == 0:
            continue
        samples = []
        for repetition in range(args.repetitions + 1):
            ll.llama_memory_clear(bench.memory, False)
            for sequence in range(sequences if args.depth else 0):
                if sequence:
                    ll.llama_memory_seq_cp(bench.memory, 0, sequence, -1, -1)
                else:
                    bench.prompt(0, args.depth)
            start = time.perf_counter_ns()
            if kind == "prompt":
                bench.prompt(args.depth, tokens)
            else:
                bench.decode(sequences, args.depth, tokens)
            if repetition:
                samples.append(tokens * sequences * 1e9 / (time.perf_counter_ns() - start))
        results.append({
            "build_commit": f"llama-cpp-python {ll.__version__}",
            "system_info": ll.llama_print_system_info().decode().strip(),
            "n_prompt": tokens if kind == "prompt" else 0, "n_gen": tokens if kind == "decode" else 0,
            "n_depth": args.depth, "n_batch": 2048, "n_threads": args.threads, "flash_attn": bool(args.flash_attn),
            "samples_ts": samples})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
