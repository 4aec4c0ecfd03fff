#!/usr/bin/env node
// Recorded agent sessions, interleaved by time, played to a running server: how many prompt tokens it computes. Lengths
// are scaled so that the longest prompt has --tokens; what prompts share stays the same. Prints one line of JSON.
//
//   node bench/agents/agents.mjs --url http://127.0.0.1:8080 --kind kvist|llama [--tokens 3600] [--room N] [--forget 3]
//                                [--sessions 8] [--vocab 900] TRACE.json...
//
// --room N     requests longer than N tokens are left out (they fit no memory of that size).
// --forget K   a turn's tool results (the middle of what it adds) leave the text K turns later: kvist gets them as
//              ranges to drop, llama.cpp's server gets the shortened text. Only turns that go on from the one before.

import {readFileSync} from "node:fs";
import {parseArgs} from "node:util";
import {post} from "../client.mjs";

const {values, positionals} = parseArgs({allowPositionals: true, options: {
    url: {type: "string", default: "http://127.0.0.1:8080"},
    kind: {type: "string", default: "kvist"},
    tokens: {type: "string", default: "3600"},
    room: {type: "string", default: "1000000000"},
    forget: {type: "string", default: "0"},
    sessions: {type: "string", default: "8"},
    vocab: {type: "string", default: "900"}
}});
const [longest, room, forget, vocab] = [values.tokens, values.room, values.forget, values.vocab].map(Number);
if (positionals.length === 0 || !["kvist", "llama"].includes(values.kind)) {
    console.error("usage: agents.mjs --kind kvist|llama [--url URL] TRACE.json...");
    process.exit(2);
}

/** 32-bit mix: equal inputs, equal tokens. */
function mix(a, b) {
    let h = Math.imul(a ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(b + 0x165667b1, 0xc2b2ae35);
    h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
    return (h ^ (h >>> 13)) >>> 0;
}

const requests = positionals.slice(0, Number(values.sessions)).flatMap((file, session) =>
    JSON.parse(readFileSync(file, "utf8")).requests.filter((r) => r.hash_ids?.length > 0)
        .map((r) => ({t: r.t, session, hashes: r.hash_ids}))).sort((a, b) => a.t - b.t || a.session - b.session);
const scale = longest / Math.max(...requests.map((r) => r.hashes.length));
for (const request of requests) {
    request.prompt = Array.from({length: Math.max(2, Math.floor(request.hashes.length * scale))}, (_, i) =>
        16 + mix(mix(request.hashes[Math.floor(i / scale)], request.session + 1), i) % (vocab - 16));
}

function common(a, b) {
    let i = 0;
    while (i < a.length && i < b.length && a[i] === b[i]) ++i;
    return i;
}

/** Gives each request the ranges that its session has forgotten by then. Sessions stay on their longest line. */
function addForgetting(list) {
    const lines = new Map();
    return list.filter((request) => {
        const line = lines.get(request.session) ?? {prompt: [], results: [], ops: []};
        if (common(line.prompt, request.prompt) < line.prompt.length) return false;
        const begin = line.prompt.length, added = request.prompt.length - begin;
        const turn = line.results.length;
        const old = line.results[turn - forget];
        request.forgets = old !== undefined && old.end > old.begin;
        if (request.forgets) line.ops.push({...old, at: begin});
        line.results.push(turn === 0 ? {begin: 0, end: 0} : {begin: begin + Math.floor(added * 0.1), end: begin + Math.floor(added * 0.9)});
        line.prompt = request.prompt;
        lines.set(request.session, line);
        request.ops = line.ops.slice();
        return true;
    });
}

const played = (forget > 0 ? addForgetting(requests) : requests).filter((r) => r.prompt.length <= room);

/** Tokens of the prompt that the server computed. */
async function play({prompt, ops = []}) {
    if (values.kind === "kvist") {
        const {reply} = await post(`${values.url}/v1/completions`, {prompt, max_tokens: 1, temperature: 0, kvist: {drop: ops}});
        return prompt.length - reply.usage.prompt_tokens_details.cached_tokens;
    }
    const left = prompt.filter((_, i) => !ops.some((op) => op.begin <= i && i < op.end));
    const {reply} = await post(`${values.url}/completion`, {prompt: left, n_predict: 1, temperature: 0, cache_prompt: true});
    return reply.timings.prompt_n;
}

const seen = new Map();
let computed = 0, total = 0, infinite = 0;
const forgetting = {requests: 0, computed_tokens: 0};  // Of these, the ones that forget something.
const started = performance.now();
for (const request of played) {
    const read = await play(request);
    computed += read;
    if (request.forgets) {
        ++forgetting.requests;
        forgetting.computed_tokens += read;
    }
    total += request.prompt.length;
    const past = seen.get(request.session) ?? [];
    infinite += Math.max(1, request.prompt.length - Math.max(0, ...past.map((p) => common(p, request.prompt))));
    past.push(request.prompt);
    seen.set(request.session, past);
}
console.log(JSON.stringify({kind: values.kind, requests: played.length, prompt_tokens: total, computed_tokens: computed,
    infinite_cache_computed_tokens: infinite, ...(forget > 0 ? {forgetting} : {}), seconds: Math.round(performance.now() - started) / 1000}));
