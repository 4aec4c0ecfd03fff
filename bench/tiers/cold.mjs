#!/usr/bin/env node
// What cold memory is good for: time to the first token of a long prompt that had to leave hot memory, beside computing
// it; and the time between tokens of other requests while prompts come back. Hot memory has room for one such prompt and a
// half. Prints one line of JSON.
//
//   node bench/tiers/cold.mjs KVIST MODEL --memory SIZE [--tokens 4097] [--prompts 3] [--cold 2GiB] [--codec none]
//        [--threads 2] [--vocab 32000]

import {parseArgs} from "node:util";
import {pseudoText} from "../client.mjs";
import {gaps, mean, metric, percentile, start, stop, stream} from "./server.mjs";

const {values, positionals} = parseArgs({allowPositionals: true, options: {
    memory: {type: "string"},
    tokens: {type: "string", default: "4097"},
    prompts: {type: "string", default: "3"},
    cold: {type: "string", default: "2GiB"},
    codec: {type: "string", default: "none"},
    threads: {type: "string", default: "2"},
    vocab: {type: "string", default: "32000"}
}});
const [kvist, model] = positionals;
const [tokens, prompts, vocab] = [values.tokens, values.prompts, values.vocab].map(Number);

const running = await start(kvist, model, ["-t", values.threads, "-c", tokens + 1024, "--kv-memory", values.memory, "--kv-cold-memory", values.cold,
    "--kv-cold-codec", values.codec]);
const text = (i) => pseudoText(tokens, i, vocab);
const result = {tokens, codec: values.codec};
const computed = [];
for (let i = 0; i < prompts; ++i) computed.push((await stream(running.url, text(i), 1)).times[0]);
result.computed_ms = mean(computed);

const restored = [], cached = [];
for (let i = 0; i < 2 * prompts; ++i) {
    const answer = await stream(running.url, text(i % prompts), 1);
    restored.push(answer.times[0]);
    cached.push(answer.cached);
}
result.restored_ms = mean(restored);
result.cached_least = Math.min(...cached);
result.times_faster = result.computed_ms / result.restored_ms;
const fetches = await metric(running.url, "kvist_tier_restores_total");
result.waited_ms = 1000 * await metric(running.url, "kvist_tier_restore_seconds_total") / fetches;
result.restored_bytes = await metric(running.url, "kvist_tier_read_bytes_total", "cold_memory") / fetches;

// Others decode, alone and while prompts come back that only have to be copied; those do not generate.
const decoders = (count, onToken) => Promise.all([7, 8].map((seed) => stream(running.url, pseudoText(64, seed, vocab), count, onToken)));
const alone = (await decoders(96)).flatMap(({times}) => gaps(times));
let restores = Promise.resolve(), asked = 0;
const beside = (await decoders(96, (count) => {
    if (count % 16 === 8) restores = Promise.all([restores, stream(running.url, text(asked++ % prompts), 1)]);
})).flatMap(({times}) => gaps(times));
await restores;
result.others_p50_ms = {alone: percentile(alone, 0.5), restoring: percentile(beside, 0.5)};
result.others_p99_ms = {alone: percentile(alone, 0.99), restoring: percentile(beside, 0.99)};
result.restores = await metric(running.url, "kvist_tier_restores_total") - fetches;
await stop(running);
console.log(JSON.stringify(result));
