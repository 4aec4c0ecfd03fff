#!/usr/bin/env node
// Conversations whose texts do not fit into memory together, with and without a drive below it: time to first token, and
// how much of each turn's prompt was found in memory, came from the drive, or was computed. Prints a line of JSON for
// each way.
//
//   node bench/tiers/pressure.mjs KVIST MODEL --folder DIR [--conversations 8] [--turns 6] [--begin 1024] [--more 256]
//        [--output 16] [--memory 128MiB] [--at-once 2] [--threads 2] [--vocab 32000] [--admissions none,a5,all]

import {rmSync} from "node:fs";
import {parseArgs} from "node:util";
import {pseudoText, random} from "../client.mjs";
import {mean, metric, percentile, start, stop, stream} from "./server.mjs";

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
    admissions: {type: "string", default: "none,a5,all"}
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

for (const admission of values.admissions.split(",")) {
    rmSync(values.folder, {recursive: true, force: true});
    const disk = admission === "none" ? [] : ["--kv-disk", values.folder, "--kv-disk-size", "8GiB", "--kv-admission", admission];
    const running = await start(kvist, model, ["-t", values.threads, "--kv-memory", values.memory, ...disk]);
    const texts = Array.from({length: conversations}, (_, i) => pseudoText(begin, 10 + i, vocab));
    const firsts = [], parts = [];
    let next = 0;
    const worker = async () => {
        while (next < order.length) {
            const {conversation, turn} = order[next++];
            const prompt = texts[conversation];
            const answer = await stream(running.url, prompt, output);
            const explained = await (await fetch(`${running.url}/kvist/requests/${answer.id}`)).json();
            const restored = explained.choices?.[0]?.restored?.tokens ?? 0;
            if (turn > 0) firsts.push(answer.times[0]);
            if (turn >= 2) parts.push({memory: answer.cached - restored, restored, computed: prompt.length - answer.cached});
            texts[conversation] = [...prompt, ...pseudoText(more, 1000 * turn + conversation, vocab)];
        }
    };
    const started = performance.now();
    await Promise.all(Array.from({length: atOnce}, worker));
    const sum = (name) => parts.reduce((all, part) => all + part[name], 0);
    const tokens = sum("memory") + sum("restored") + sum("computed");
    console.log(JSON.stringify({admission, seconds: (performance.now() - started) / 1000, ttft_mean_ms: mean(firsts), ttft_p99_ms: percentile(firsts, 0.99),
        from_memory: sum("memory") / tokens, from_drive: sum("restored") / tokens, computed: sum("computed") / tokens,
        written_bytes: await metric(running.url, "kvist_tier_written_bytes_total")}));
    await stop(running);
}
