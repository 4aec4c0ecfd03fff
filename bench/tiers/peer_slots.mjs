#!/usr/bin/env node
// What llama.cpp's server gives for the same: a slot's keys and values saved to a file, and restored after a restart
// when its client asks for that. Time to the first token of a long prompt, computed and restored; the file comes from
// the drive, not from the page cache. Starts the server itself. Prints one line of JSON.
//
//   node bench/tiers/peer_slots.mjs LLAMA_SERVER MODEL --folder DIR [--tokens 8193] [--threads 2] [--vocab 32000]
//        [--port 18917]

import {execFileSync} from "node:child_process";
import {mkdirSync} from "node:fs";
import path from "node:path";
import {parseArgs} from "node:util";
import {pseudoText} from "../client.mjs";
import {startPeer} from "./peer.mjs";
import {stop} from "./server.mjs";

const {values, positionals} = parseArgs({allowPositionals: true, options: {
    folder: {type: "string"},
    tokens: {type: "string", default: "8193"},
    threads: {type: "string", default: "2"},
    vocab: {type: "string", default: "32000"},
    port: {type: "string", default: "18917"}
}});
const [binary, model] = positionals;
if (model === undefined || values.folder === undefined) throw new Error("give llama-server, a model and --folder");
mkdirSync(values.folder, {recursive: true});  // The server wants it to be there.
const file = "slot.bin";
const tokens = Number(values.tokens), url = `http://127.0.0.1:${values.port}`;

// One slot, and no second place in memory where a prompt could be kept.
const open = () => startPeer(binary, model, {contexts: 1, tokens: tokens + 1024, threads: values.threads, port: values.port,
    flags: ["--cache-ram", 0, "--slot-save-path", values.folder]});

async function post(path, body) {
    const begin = performance.now();
    const response = await fetch(url + path, {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body)});
    const answer = await response.json();
    if (!response.ok) throw new Error(JSON.stringify(answer));
    return {ms: performance.now() - begin, answer};
}

const ask = (seed, count) => post("/completion", {prompt: pseudoText(count, seed, Number(values.vocab)), n_predict: 1, temperature: 0, cache_prompt: true});

let running = await open();
const computed = await ask(1, tokens);
const saved = await post("/slots/0?action=save", {filename: file});
await stop(running);
execFileSync("sync", [path.join(values.folder, file)]);
execFileSync("dd", [`if=${path.join(values.folder, file)}`, "iflag=nocache", "count=0", "status=none"]);  // Out of the page cache.

running = await open();
await ask(99, 64);  // Pages of the program and of weights.
const restored = await post("/slots/0?action=restore", {filename: file});
const again = await ask(1, tokens);
await stop(running);
console.log(JSON.stringify({tokens, computed_ms: computed.ms, save_ms: saved.ms, saved_bytes: saved.answer.n_written, restore_ms: restored.ms, answer_ms: again.ms,
    restored_ms: restored.ms + again.ms, computed_again: again.answer.timings?.prompt_n}));
