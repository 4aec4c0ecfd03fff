#!/usr/bin/env node
// Many requests at overload against a running `kvist serve`: short and long, whole and streamed, cancelled half way,
// broken, too large. Every one must be answered or refused, memory must stay flat, and gauges must return to zero.
// Prints one line of JSON, and exits with 1 where one of these does not hold.
//
//   kvist serve --port 8080 --queue 64 --usage-db usage.db &
//   node bench/soak/soak.mjs --url http://127.0.0.1:8080 --pid $! --requests 20000 [--concurrency 128] [--key KEY]

import http from "node:http";
import {readFileSync} from "node:fs";
import {parseArgs} from "node:util";
import {random as generator} from "../client.mjs";

const {values} = parseArgs({options: {
    url: {type: "string", default: "http://127.0.0.1:8080"},
    pid: {type: "string", default: ""},
    key: {type: "string", default: ""},
    requests: {type: "string", default: "20000"},
    concurrency: {type: "string", default: "128"},
    "growth-mib": {type: "string", default: "16"}   // of the process, after the first half: until then KV memory fills
}});
const total = Number(values.requests), concurrency = Number(values.concurrency);
const agent = new http.Agent({keepAlive: true, maxSockets: concurrency});
const headers = values.key ? {authorization: `Bearer ${values.key}`} : {};

// The same requests each time.
const draw = generator(12345);
const random = (below) => (draw() >>> 8) % below;
const words = ["the", "kind", "boy", "went", "to", "a", "museum", "and", "saw", "old", "keys", "of", "silver"];
const text = (count) => Array.from({length: count}, () => words[random(words.length)]).join(" ");

// One request. Resolves to a word for what became of it; rejects where there was no answer at all.
const send = (path, body, {cancelAfter = 0} = {}) => new Promise((resolve, reject) => {
    const data = typeof body === "string" ? body : JSON.stringify(body);
    let cancelled = false;
    const request = http.request(values.url + path, {
        method: "POST", agent, headers: {...headers, "content-type": "application/json", "content-length": Buffer.byteLength(data)}
    }, (response) => {
        let tail = "", pieces = 0;
        response.setEncoding("utf8");
        response.on("data", (piece) => {
            tail = (tail + piece).slice(-200);
            if (cancelAfter > 0 && ++pieces >= cancelAfter) { cancelled = true; request.destroy(); resolve("cancelled"); }
        });
        response.on("end", () => {
            const streamed = (response.headers["content-type"] ?? "").startsWith("text/event-stream");
            if (streamed && !tail.includes("[DONE]") && !tail.includes('"error"')) return reject(new Error("a stream without an end"));
            if (response.statusCode === 429 && !response.headers["retry-after"]) return reject(new Error("429 without Retry-After"));
            if (!response.headers["x-request-id"]) return reject(new Error("an answer without x-request-id"));
            resolve(String(response.statusCode));
        });
        response.on("error", (error) => { if (!cancelled) reject(error); });
    });
    request.on("error", (error) => {
        if (cancelled) return;
        // The server may close a connection that was idle for long just as it is used again: clients try anew then.
        if (request.reusedSocket && ["ECONNRESET", "EPIPE"].includes(error.code)) return resolve(send(path, body, {cancelAfter}));
        reject(error);
    });
    if (cancelAfter < 0) setTimeout(() => { cancelled = true; request.destroy(); resolve("cancelled"); }, random(50));
    request.end(data);
});

const chat = (count, more) => ({messages: [{role: "user", content: text(count)}], ...more});
const kinds = [
    () => send("/v1/chat/completions", chat(8, {max_tokens: 8})),
    () => send("/v1/chat/completions", chat(30, {max_tokens: 16, stream: true})),
    () => send("/v1/chat/completions", chat(200, {max_tokens: 4, stream: true})),
    () => send("/v1/completions", {prompt: text(20), max_tokens: 12}),
    () => send("/v1/completions", {prompt: "Once upon a time", max_tokens: 6, n: 3}),
    () => send("/v1/chat/completions", chat(20, {max_tokens: 400, stream: true}), {cancelAfter: 1 + random(8)}),
    () => send("/v1/chat/completions", chat(60, {max_tokens: 400}), {cancelAfter: -1}),
    () => send("/v1/chat/completions", "{\"messages\": [}"),
    () => send("/v1/completions", {prompt: text(40), max_tokens: 4, kvist: {cache_salt: `s${random(50)}`}}),
    () => send("/v1/chat/completions", chat(12, {max_tokens: 8, kvist: {session: `s${random(30)}`, capsule: true}})),
    () => send("/v1/completions", {prompt: text(9000), max_tokens: 4})
];

const rssMib = () => {
    if (!values.pid) return 0;
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${values.pid}/status`, "utf8"))[1]) / 1024;
};
const gauges = async () => {
    const body = await (await fetch(values.url + "/metrics", {headers})).text();
    const read = (name) => Number(new RegExp(`^${name}\\S* (\\S+)$`, "m").exec(body)?.[1] ?? NaN);
    return {running: read("vllm:num_requests_running"), waiting: read("vllm:num_requests_waiting"),
        referenced: read('kvist_kv_blocks\\{[^}]*state="referenced"'), rows_waiting: read("kvist_usage_rows_waiting")};
};

const outcomes = {}, faults = [], memory = [];
let next = 0, done = 0;
const begun = performance.now();
const worker = async () => {
    while (next < total) {
        next++;
        try {
            const outcome = await kinds[random(kinds.length)]();
            outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
        } catch (error) {
            faults.push(String(error.message ?? error));
        }
        if (++done % Math.max(1, Math.floor(total / 20)) === 0) memory.push(Math.round(rssMib() * 10) / 10);
    }
};
await Promise.all(Array.from({length: concurrency}, worker));
const seconds = (performance.now() - begun) / 1e3;
agent.destroy();

let last;
for (let i = 0; i < 100; ++i) {
    last = await gauges();
    if (last.running + last.waiting + last.referenced === 0) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
}
const half = memory.slice(Math.floor(memory.length / 2));
const grownMib = half.length < 2 ? 0 : Math.max(...half) - half[0];
const strange = Object.keys(outcomes).filter((outcome) => !["200", "400", "429", "cancelled"].includes(outcome));
const idle = last.running === 0 && last.waiting === 0 && last.referenced === 0;
const good = faults.length === 0 && strange.length === 0 && idle && grownMib <= Number(values["growth-mib"]);
console.log(JSON.stringify({requests: total, concurrency, seconds: Math.round(seconds * 10) / 10, outcomes, faults: faults.length,
    fault: faults[0] ?? null, gauges: last, rss_mib: memory, grown_mib: Math.round(grownMib * 10) / 10, good}));
process.exit(good ? 0 : 1);
