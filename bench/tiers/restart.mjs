#!/usr/bin/env node
// What a drive under KV memory is good for: time to the first token of a long prompt that was read before a restart,
// beside what the drive's own speed allows and beside computing it; and the time between tokens of other requests while
// prompts come back. Starts the server itself. Prints one line of JSON.
//
//   node bench/tiers/restart.mjs KVIST MODEL --folder DIR [--tokens 8193] [--prompts 3] [--threads 2] [--vocab 32000]

import {execFileSync} from "node:child_process";
import {parseArgs} from "node:util";
import {pseudoText} from "../client.mjs";
import {gaps, metric, percentile, start, stop, stream} from "./server.mjs";

const {values, positionals} = parseArgs({allowPositionals: true, options: {
    folder: {type: "string"},
    tokens: {type: "string", default: "8193"},
    prompts: {type: "string", default: "3"},
    threads: {type: "string", default: "2"},
    vocab: {type: "string", default: "32000"},
    memory: {type: "string", default: "3GiB"}
}});
const [kvist, model] = positionals;
const [tokens, prompts, vocab] = [values.tokens, values.prompts, values.vocab].map(Number);

const open = () => start(kvist, model, ["-t", values.threads, "-c", tokens + 1024, "--kv-memory", values.memory, "--kv-disk", values.folder,
    "--kv-disk-size", "8GiB"]);
const text = (seed) => pseudoText(tokens, seed, vocab);

let running = await open();
const result = {tokens};
const first = await stream(running.url, text(1), 16);
result.computed_ms = first.times[0];
result.token_ms = percentile(gaps(first.times), 0.5);
for (let i = 2; i <= prompts; ++i) await stream(running.url, text(i), 1);
await stop(running);

const speeds = execFileSync(kvist, ["store", "calibrate", values.folder, "--json"]).toString().trim().split("\n").map((line) => JSON.parse(line));
result.drive_bytes_per_s = Math.max(...speeds.map((speed) => speed.read_bytes_per_s));

running = await open();
await stream(running.url, pseudoText(64, 99, vocab), 16);  // Pages of the program and of weights.
const again = await stream(running.url, text(1), 16);
result.restored_ms = again.times[0];
result.cached = again.cached;
result.restored_bytes = await metric(running.url, "kvist_tier_read_bytes_total");
result.waited_ms = 1000 * await metric(running.url, "kvist_tier_restore_seconds_total");
result.allowed_ms = 1000 * result.restored_bytes / result.drive_bytes_per_s + result.token_ms;
result.over_allowed = result.restored_ms / result.allowed_ms;
result.times_faster = result.computed_ms / result.restored_ms;

// Others decode, alone and while prompts come back that only have to be read; those do not generate.
const decoders = (count, onToken) => Promise.all([7, 8].map((seed) => stream(running.url, pseudoText(64, seed, vocab), count, onToken)));
const alone = (await decoders(64)).flatMap(({times}) => gaps(times));
let restores = Promise.resolve(), asked = 2;
const beside = (await decoders(64, (count) => {
    if (count % 16 === 8 && asked <= prompts) restores = Promise.all([restores, stream(running.url, text(asked++), 1)]);
})).flatMap(({times}) => gaps(times));
await restores;
result.others_p99_ms = {alone: percentile(alone, 0.99), restoring: percentile(beside, 0.99)};
result.others_p50_ms = {alone: percentile(alone, 0.5), restoring: percentile(beside, 0.5)};
await stop(running);
console.log(JSON.stringify(result));
