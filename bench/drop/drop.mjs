#!/usr/bin/env node
// Time to first token after forgetting a part of a long text, beside reading the shortened text again (both against a
// running `kvist serve`, /v1/completions with token ids). Prints one line of JSON.
//
//   kvist serve MODEL --port 8080 & node bench/drop/drop.mjs --url http://127.0.0.1:8080 [--tokens 32768] [--begin 8192]
//                                                            [--end 16384] [--question 64] [--vocab 32000]

import {parseArgs} from "node:util";

const {values} = parseArgs({options: {
    url: {type: "string", default: "http://127.0.0.1:8080"},
    tokens: {type: "string", default: "32768"},
    begin: {type: "string", default: "8192"},
    end: {type: "string", default: "16384"},
    question: {type: "string", default: "64"},
    vocab: {type: "string", default: "32000"}
}});
const [tokens, begin, end, question, vocab] = [values.tokens, values.begin, values.end, values.question, values.vocab].map(Number);

/** Pseudo-random token ids: equal seeds, equal texts. */
function text(count, seed) {
    let state = seed;
    return Array.from({length: count}, () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return 16 + state % (vocab - 16);
    });
}

async function firstToken(prompt, kvist = {}) {
    const start = performance.now();
    const response = await fetch(`${values.url}/v1/completions`, {
        method: "POST", headers: {"content-type": "application/json"},
        body: JSON.stringify({prompt, max_tokens: 1, temperature: 0, kvist})
    });
    const reply = await response.json();
    if (!response.ok) throw new Error(reply.error.message);
    return {ms: performance.now() - start, usage: reply.usage};
}

const history = text(tokens, 1), ask = text(question, 2);
const read = await firstToken(history);  // The history as it was read and answered.
const dropped = await firstToken([...history, ...ask], {drop: [{begin, end, at: tokens}]});
const whole = await firstToken([...history, ...ask]);
const reread = await firstToken([...history.slice(0, begin), ...history.slice(end), ...ask]);
const cold = await firstToken([...history.slice(0, begin), ...history.slice(end), ...ask], {cache_salt: String(Math.random())});
console.log(JSON.stringify({
    tokens, begin, end, question, first_read_ms: read.ms, dropped_ms: dropped.ms, whole_ms: whole.ms,
    reread_ms: reread.ms, reread_without_cache_ms: cold.ms, ratio: reread.ms / dropped.ms,
    cached_tokens: {dropped: dropped.usage.prompt_tokens_details.cached_tokens, reread: reread.usage.prompt_tokens_details.cached_tokens}
}));
