#!/usr/bin/env node
// Answers that outgrow memory together, so that some are put back: computed again, or brought back from cold memory or a drive (P44). The
// longest time that each answer stood still, and how long all took. Prints a line of JSON for each way.
//
//   node bench/tiers/preempt.mjs KVIST MODEL --folder DIR [--requests 6] [--prompt 1024] [--output 256] [--memory 128MiB]
//        [--cold 1GiB] [--drive 4GiB] [--threads 2] [--vocab 32000] [--ways memory,cold,drive]

import {rmSync} from "node:fs";
import {parseArgs} from "node:util";
import {pseudoText} from "../client.mjs";
import {gaps, mean, metric, percentile, start, stop, stream, tierFlags} from "./server.mjs";

const {values, positionals} = parseArgs({allowPositionals: true, options: {
    folder: {type: "string"},
    requests: {type: "string", default: "6"},
    prompt: {type: "string", default: "1024"},
    output: {type: "string", default: "256"},
    memory: {type: "string", default: "128MiB"},
    cold: {type: "string", default: "1GiB"},
    drive: {type: "string", default: "4GiB"},
    threads: {type: "string", default: "2"},
    vocab: {type: "string", default: "32000"},
    ways: {type: "string", default: "memory,cold,drive"}
}});
const [kvist, model] = positionals;
const [requests, prompt, output, vocab] = ["requests", "prompt", "output", "vocab"].map((name) => Number(values[name]));

for (const way of values.ways.split(",")) {
    rmSync(values.folder, {recursive: true, force: true});
    const flags = ["-t", values.threads, "--kv-memory", values.memory, "--policy", "fcfs", ...tierFlags(way, values.folder, values)];
    const running = await start(kvist, model, flags);
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
