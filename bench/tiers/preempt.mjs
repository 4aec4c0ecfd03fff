#!/usr/bin/env node
// Answers that outgrow memory together, so that some are put back: computed again, or read again from a drive (P44). The
// longest time that each answer stood still, and how long all took. Prints a line of JSON for each way.
//
//   node bench/tiers/preempt.mjs KVIST MODEL --folder DIR [--requests 6] [--prompt 1024] [--output 256] [--memory 128MiB]
//        [--threads 2] [--vocab 32000]

import {rmSync} from "node:fs";
import {parseArgs} from "node:util";
import {pseudoText} from "../client.mjs";
import {gaps, mean, metric, percentile, start, stop, stream} from "./server.mjs";

const {values, positionals} = parseArgs({allowPositionals: true, options: {
    folder: {type: "string"},
    requests: {type: "string", default: "6"},
    prompt: {type: "string", default: "1024"},
    output: {type: "string", default: "256"},
    memory: {type: "string", default: "128MiB"},
    threads: {type: "string", default: "2"},
    vocab: {type: "string", default: "32000"}
}});
const [kvist, model] = positionals;
const [requests, prompt, output, vocab] = ["requests", "prompt", "output", "vocab"].map((name) => Number(values[name]));

for (const way of ["computed", "read"]) {
    rmSync(values.folder, {recursive: true, force: true});
    const disk = way === "read" ? ["--kv-disk", values.folder, "--kv-disk-size", "4GiB"] : [];
    const running = await start(kvist, model, ["-t", values.threads, "--kv-memory", values.memory, "--policy", "fcfs", ...disk]);
    const started = performance.now();
    const answers = await Promise.all(Array.from({length: requests}, (_, i) => stream(running.url, pseudoText(prompt, 50 + i, vocab), output)));
    const seconds = (performance.now() - started) / 1000;
    const longest = answers.map(({times}) => Math.max(...gaps(times)));
    const all = answers.flatMap(({times}) => gaps(times));
    await new Promise((resolve) => setTimeout(resolve, 300));
    console.log(JSON.stringify({way, seconds, preemptions: await metric(running.url, "vllm:num_preemptions_total"),
        longest_stop_ms: Math.max(...longest), mean_longest_stop_ms: mean(longest), itl_p99_ms: percentile(all, 0.99),
        swapped_blocks: await metric(running.url, "kvist_tier_swapped_blocks_total"),
        restored_blocks: await metric(running.url, "kvist_tier_restored_blocks_total")}));
    await stop(running);
}
