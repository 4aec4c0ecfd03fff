#!/usr/bin/env node
// Conversations whose texts do not fit into memory together, with and without tiers below it: time to first token from
// the second turn on, times between tokens, and, from the third turn on, how much of the prompts was found in hot memory,
// came from cold memory or the drive, or was computed. Prints a line of JSON for each way.
//
//   node bench/tiers/pressure.mjs KVIST MODEL --folder DIR [--conversations 8] [--turns 6] [--begin 1024] [--more 256]
//        [--output 16] [--memory 128MiB] [--cold 1GiB] [--drive 8GiB] [--at-once 2] [--threads 2] [--vocab 32000]
//        [--ways memory,cold,drive,both,peer] [--peer LLAMA_SERVER] [--peer-cache MiB] [--port 18918]
//
// "peer" is llama.cpp's server with as many slots as conversations at once, each with room for the longest one, and its
// prompt cache in memory of --peer-cache MiB.

import {rmSync} from "node:fs";
import {parseArgs} from "node:util";
import {pseudoText, random} from "../client.mjs";
import {startPeer, streamPeer} from "./peer.mjs";
import {gaps, mean, metric, percentile, start, stop, stream, tierFlags} from "./server.mjs";

const {values, positionals} = parseArgs({allowPositionals: true, options: {
    folder: {type: "string"},
    conversations: {type: "string", default: "8"},
    turns: {type: "string", default: "6"},
    begin: {type: "string", default: "1024"},
    more: {type: "string", default: "256"},
    output: {type: "string", default: "16"},
    memory: {type: "string", default: "128MiB"},
    "at-once": {type: "string", default: "2"},
    threads: {type: "string", default: "2"},
    vocab: {type: "string", default: "32000"},
    cold: {type: "string", default: "1GiB"},
    drive: {type: "string", default: "8GiB"},
    peer: {type: "string"},
    "peer-cache": {type: "string", default: "1024"},
    port: {type: "string", default: "18918"},
    ways: {type: "string", default: "memory,cold,drive,both"}
}});
const [kvist, model] = positionals;
const [conversations, turns, begin, more, output, atOnce, vocab] =
    ["conversations", "turns", "begin", "more", "output", "at-once", "vocab"].map((name) => Number(values[name]));

// Everybody's next turn comes after all others have had theirs, in an order of chance.
const order = [];
const draw = random(3);
for (let turn = 0; turn < turns; ++turn) {
    const round = Array.from({length: conversations}, (_, i) => i);
    for (let i = round.length - 1; i > 0; --i) {
        const j = draw() % (i + 1);
        [round[i], round[j]] = [round[j], round[i]];
    }
    order.push(...round.map((conversation) => ({conversation, turn})));
}

for (const way of values.ways.split(",")) {
    rmSync(values.folder, {recursive: true, force: true});
    const isPeer = way === "peer";
    const running = isPeer
        ? await startPeer(values.peer, model, {contexts: atOnce, tokens: begin + turns * (more + output), threads: values.threads, port: values.port,
            flags: ["--cache-ram", values["peer-cache"]]})
        : await start(kvist, model, ["-t", values.threads, "--kv-memory", values.memory, ...tierFlags(way, values.folder, values)]);
    const read = async (tier) => isPeer ? 0 : metric(running.url, "kvist_tier_read_bytes_total", tier);
    const texts = Array.from({length: conversations}, (_, i) => pseudoText(begin, 10 + i, vocab));
    const firsts = [], between = [], parts = [];
    let next = 0, coldBefore = 0, driveBefore = 0, restored = 0;
    const worker = async () => {
        while (next < order.length) {
            const {conversation, turn} = order[next++];
            const prompt = texts[conversation];
            if (turn === 2 && parts.length === 0 && restored === 0) [coldBefore, driveBefore] = [await read("cold_memory"), await read("drive")];
            const answer = await (isPeer ? streamPeer : stream)(running.url, prompt, output);
            between.push(...gaps(answer.times));
            const explained = isPeer ? {} : await (await fetch(`${running.url}/kvist/requests/${answer.id}`)).json();
            const back = explained.choices?.[0]?.restored?.tokens ?? 0;
            if (turn > 0) firsts.push(answer.times[0]);
            if (turn >= 2) {
                restored += back;
                parts.push({memory: answer.cached - back, restored: back, computed: prompt.length - answer.cached});
            }
            texts[conversation] = [...prompt, ...pseudoText(more, 1000 * turn + conversation, vocab)];
        }
    };
    const started = performance.now();
    await Promise.all(Array.from({length: atOnce}, worker));
    const sum = (name) => parts.reduce((all, part) => all + part[name], 0);
    const tokens = sum("memory") + sum("restored") + sum("computed"), known = sum("memory") + sum("restored");
    const [cold, drive] = [await read("cold_memory") - coldBefore, await read("drive") - driveBefore];
    const share = cold + drive === 0 ? 0 : cold / (cold + drive);
    console.log(JSON.stringify({way, seconds: (performance.now() - started) / 1000, ttft_mean_ms: mean(firsts), ttft_p99_ms: percentile(firsts, 0.99),
        itl_p50_ms: percentile(between, 0.5), itl_p99_ms: percentile(between, 0.99),
        from_memory: sum("memory") / tokens, from_cold: sum("restored") * share / tokens, from_drive: sum("restored") * (1 - share) / tokens,
        computed: sum("computed") / tokens, reused_from_ram: known === 0 ? 0 : (sum("memory") + sum("restored") * share) / known,
        written_bytes: isPeer ? 0 : await metric(running.url, "kvist_tier_written_bytes_total", "drive")}));
    await stop(running);
}
