#!/usr/bin/env node
// The same requests through a load tool that is not ours: chats of a data set, each sent once, so many at once, not streamed.
// Beside kvist bench-serve it says whether that measures what it says. Prints one line of JSON.
//
//   npm install --prefix bench/serve
//   node bench/serve/autocannon.mjs --url http://127.0.0.1:8080 --dataset sharegpt.json [--connections 16] [--requests 32] [--max-tokens 128]
//
// bench-serve with --turns 1 and the same numbers is what to compare it with.

import {readFileSync} from "node:fs";
import {parseArgs} from "node:util";
import autocannon from "autocannon";

const {values} = parseArgs({options: {
    url: {type: "string", default: "http://127.0.0.1:8080"},
    dataset: {type: "string"},
    connections: {type: "string", default: "16"},
    requests: {type: "string", default: "32"},
    "max-tokens": {type: "string", default: "128"}
}});
const count = Number(values.requests);
const bodies = JSON.parse(readFileSync(values.dataset, "utf8")).slice(0, count).map(({input}) => JSON.stringify({
    messages: [{role: "user", content: input}], max_tokens: Number(values["max-tokens"]), temperature: 0, ignore_eos: true}));
let next = 0, outputTokens = 0;
const instance = autocannon({
    url: values.url, connections: Number(values.connections), amount: bodies.length, timeout: 600,
    requests: [{
        method: "POST", path: "/v1/chat/completions", headers: {"content-type": "application/json"},
        setupRequest: (request) => ({...request, body: bodies[next++ % bodies.length]}),
        onResponse: (status, body) => {
            if (status === 200) outputTokens += JSON.parse(body).usage.completion_tokens;
        }
    }]
});
const result = await instance;
console.log(JSON.stringify({answered: result["2xx"], failed: result.non2xx + result.errors + result.timeouts,
    seconds: result.duration, output_tokens: outputTokens, output_tokens_per_s: outputTokens / result.duration,
    e2e_ms: {mean: result.latency.average, p50: result.latency.p50, p90: result.latency.p90, p99: result.latency.p99}}));
