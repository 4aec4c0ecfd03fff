#!/usr/bin/env node
// What a drive under KV memory is good for: time to the first token of a long prompt that was read before a restart,
// beside what the drive's own speed allows and beside computing it; and the time between tokens of other requests while
// prompts come back. Starts the server itself. Prints one line of JSON.
//
//   node bench/tiers/restart.mjs KVIST MODEL --folder DIR [--tokens 8193] [--prompts 3] [--restarts 6] [--rounds 4]
//        [--threads 2] [--vocab 32000]

import {spawn} from "node:child_process";
import {once} from "node:events";
import {readdirSync, statSync} from "node:fs";
import path from "node:path";
import {parseArgs} from "node:util";
import {pseudoText} from "../client.mjs";
import {gaps, metric, percentile, start, stop, stream} from "./server.mjs";

const {values, positionals} = parseArgs({allowPositionals: true, options: {
    folder: {type: "string"},
    tokens: {type: "string", default: "8193"},
    prompts: {type: "string", default: "3"},
    restarts: {type: "string", default: "6"},
    rounds: {type: "string", default: "4"},
    threads: {type: "string", default: "2"},
    vocab: {type: "string", default: "32000"},
    memory: {type: "string", default: "3GiB"}
}});
const [kvist, model] = positionals;
if (model === undefined || values.folder === undefined) throw new Error("give kvist, a model and --folder");
const [tokens, prompts, restarts, vocab] = [values.tokens, values.prompts, values.restarts, values.vocab].map(Number);

const open = (memory = values.memory) => start(kvist, model, ["-t", values.threads, "-c", tokens + 1024, "--kv-memory", memory, "--kv-disk", values.folder,
    "--kv-disk-size", "8GiB"]);
const text = (seed) => pseudoText(tokens, seed, vocab);
const median = (list) => percentile(list, 0.5);

/** Bytes a second of the store's own files, past the page cache, sixteen at a time: what the drive gives right now. */
async function driveSpeed() {
    const files = readdirSync(values.folder).filter((name) => name.endsWith(".kv")).map((name) => path.join(values.folder, name));
    const bytes = files.reduce((sum, file) => sum + statSync(file).size, 0);
    const begin = performance.now();
    const reader = async (first) => {
        for (let i = first; i < files.length; i += 16) {
            await once(spawn("dd", [`if=${files[i]}`, "of=/dev/null", "bs=1M", "iflag=direct", "status=none"]), "exit");
        }
    };
    await Promise.all(Array.from({length: 16}, (_, i) => reader(i)));
    return 1000 * bytes / (performance.now() - begin);
}

let running = await open();
const result = {tokens};
const first = await stream(running.url, text(1), 16);
result.computed_ms = first.times[0];
for (let i = 2; i <= prompts; ++i) await stream(running.url, text(i), 1);
await stop(running);

// Each time the drive is measured right before and right after, as its speed changes from second to second.
const rounds = [];
for (let i = 0; i < restarts; ++i) {
    const before = await driveSpeed();
    running = await open();
    await stream(running.url, pseudoText(64, 99, vocab), 16);  // Pages of the program and of weights.
    const readBefore = await metric(running.url, "kvist_tier_read_bytes_total");
    const waitedBefore = await metric(running.url, "kvist_tier_restore_seconds_total");
    const again = await stream(running.url, text(1 + i % prompts), 8);
    const round = {
        restored_ms: again.times[0],
        cached: again.cached,
        bytes: await metric(running.url, "kvist_tier_read_bytes_total") - readBefore,
        waited_ms: 1000 * (await metric(running.url, "kvist_tier_restore_seconds_total") - waitedBefore),
        token_ms: median(gaps(again.times))
    };
    await stop(running);
    // A restore that was faster than both shows what the drive could do then.
    round.drive_bytes_per_s = Math.max((before + await driveSpeed()) / 2, 1000 * round.bytes / round.waited_ms);
    round.allowed_ms = 1000 * round.bytes / round.drive_bytes_per_s + round.token_ms;
    round.over_allowed = round.restored_ms / round.allowed_ms;
    rounds.push(round);
}
result.rounds = rounds;
result.restored_ms = median(rounds.map((round) => round.restored_ms));
result.over_allowed = median(rounds.map((round) => round.over_allowed));
result.times_faster = result.computed_ms / result.restored_ms;
result.restored_bytes = rounds[0].bytes;

// Others decode: alone; while prompts come that have to be read from the drive, as memory holds two of three; while one
// of them comes as often from memory. A long prompt costs its last token's step in either case. In turns, as machines
// change.
running = await open(Math.ceil(2.4 * result.restored_bytes));
const decoders = (count, onToken) => Promise.all([7, 8].map((seed) => stream(running.url, pseudoText(64, seed, vocab), count, onToken)));
let asked = 0;
const beside = async (seedOf) => {
    const arrivals = [];
    const decoded = await decoders(240, (count) => {
        if (count % 24 === 8) arrivals.push(stream(running.url, text(seedOf(asked++)), 1));
    });
    await Promise.all(arrivals);
    return decoded.flatMap(({times}) => gaps(times));
};
const all = {alone: [], restoring: [], cached: []};
const read = {restoring: 0, cached: 0};
for (let i = 0; i < Number(values.rounds); ++i) {
    all.alone.push(...(await decoders(128)).flatMap(({times}) => gaps(times)));
    for (const way of ["restoring", "cached"]) {
        const before = await metric(running.url, "kvist_tier_read_bytes_total");
        all[way].push(...await beside(way === "restoring" ? (i) => 1 + i % prompts : () => 1));
        read[way] += await metric(running.url, "kvist_tier_read_bytes_total") - before;
    }
}
result.others = {texts_restored: read.restoring / result.restored_bytes, texts_restored_cached: read.cached / result.restored_bytes};
for (const share of [0.5, 0.99]) {
    result.others[`p${100 * share}_ms`] = Object.fromEntries(Object.entries(all).map(([way, list]) => [way, percentile(list, share)]));
}
await stop(running);
console.log(JSON.stringify(result));
