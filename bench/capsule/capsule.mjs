#!/usr/bin/env node
// Time to first token from a capsule beside reading the same text anew (against a running `kvist serve`), for contexts
// of several lengths; the time to take a snapshot of a running request; and whether both go on with the same tokens.
// Prints one line of JSON a length.
//
//   kvist serve MODEL --port 8080 -c 20000 & node bench/capsule/capsule.mjs --url http://127.0.0.1:8080 [--tokens 2048,8192,16384]
//                                                                        [--vocab 32000] [--rounds 3]

import {parseArgs} from "node:util";
import {post as postTo, pseudoText} from "../client.mjs";

const {values} = parseArgs({options: {
    url: {type: "string", default: "http://127.0.0.1:8080"},
    tokens: {type: "string", default: "2048,8192,16384"},
    vocab: {type: "string", default: "32000"},
    rounds: {type: "string", default: "3"}
}});
const vocab = Number(values.vocab);

const post = (path, body) => postTo(values.url + path, body);
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const sampled = {temperature: 1, seed: 1, presence_penalty: 0.5, ignore_eos: true};

for (const tokens of values.tokens.split(",").map(Number)) {
    const prompt = pseudoText(tokens, tokens, vocab);
    const cold = [], restored = [];
    let whole = "", branch = "";
    for (let round = 0; round < Number(values.rounds); ++round) {
        const salt = `${tokens} ${round} ${Math.random()}`;
        const own = {cache_salt: salt, capsule: true};
        cold.push((await post("/v1/completions", {prompt, max_tokens: 1, ...sampled, kvist: own})).ms);
        const {reply} = await post("/v1/completions", {prompt, max_tokens: 8, ...sampled, kvist: own});
        const capsule = reply.choices[0].kvist.capsule;
        whole = reply.choices[0].text;
        restored.push((await post("/v1/completions",
            {max_tokens: 1, kvist: {cache_salt: salt, restore: {capsule, output_tokens: 4}}})).ms);
        const back = await post("/v1/completions", {max_tokens: 8, kvist: {cache_salt: salt, restore: {capsule, output_tokens: 0}}});
        branch = back.reply.choices[0].text;
    }
    // A snapshot of a request that runs.
    const snapshots = [];
    const response = await fetch(values.url + "/v1/completions", {
        method: "POST", headers: {"content-type": "application/json"},
        body: JSON.stringify({prompt: prompt.slice(0, 64), max_tokens: 400, stream: true, ...sampled})
    });
    const reader = response.body.getReader();
    const first = new TextDecoder().decode((await reader.read()).value);
    const request = /"id":"(cmpl-[0-9a-f]+)"/.exec(first)[1];
    for (let i = 0; i < 20; ++i) snapshots.push((await post("/kvist/capsules", {request})).ms);
    await reader.cancel();
    console.log(JSON.stringify({tokens, cold_ms: median(cold), restored_ms: median(restored), ratio: median(cold) / median(restored),
        snapshot_ms: median(snapshots), same_tokens: whole === branch}));
}
