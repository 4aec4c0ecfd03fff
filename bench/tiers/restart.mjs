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

const open = (memory = values.memory) => start(kvist, model, ["-t", values.threads, "-c", tokens + 1024, "--kv-memory", memory, "--kv-disk", values.folder,
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

await stop(running);

// Others decode: alone; while prompts come that have to be read from the drive, as memory holds two of three; while one
// of them comes as often from memory. A long prompt costs its last token's step in either case.
running = await open(Math.ceil(2.4 * result.restored_bytes));
const decoders = (count, onToken) => Promise.all([7, 8].map((seed) => stream(running.url, pseudoText(64, seed, vocab), count, onToken)));
const alone = (await decoders(128)).flatMap(({times}) => gaps(times));
const beside = async (seedOf) => {
    let asked = 0;
    const arrivals = [];
    const decoded = (await decoders(240, (count) => {
        if (count % 24 === 8) arrivals.push(stream(running.url, text(seedOf(asked++)), 1));
    })).flatMap(({times}) => gaps(times));
    await Promise.all(arrivals);
    return {gaps: decoded, read: await metric(running.url, "kvist_tier_read_bytes_total")};
};
const restoring = await beside((i) => 1 + i % prompts);
const cached = await beside(() => 1);
result.others = {restored: Math.round(restoring.read / result.restored_bytes), restored_later: Math.round((cached.read - restoring.read) / result.restored_bytes)};
for (const share of [0.5, 0.99]) {
    result.others[`p${100 * share}_ms`] = {alone: percentile(alone, share), restoring: percentile(restoring.gaps, share), cached: percentile(cached.gaps, share)};
}
await stop(running);
console.log(JSON.stringify(result));
