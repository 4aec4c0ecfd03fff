#!/usr/bin/env node
// Time to first token after forgetting a part of a long text, beside what a client can do instead: read the shortened
// text again, or have the part summarised and read the text with the summary in its place. And a plain next turn, beside
// what its own tokens cost. All against a running `kvist serve`, /v1/completions with token ids. Prints one line of JSON.
//
//   kvist serve MODEL --port 8080 & node bench/drop/drop.mjs --url http://127.0.0.1:8080 [--tokens 32768] [--begin 8192]
//        [--end 16384] [--question 64] [--turn 200] [--summary 256] [--cold] [--vocab 32000]

import {parseArgs} from "node:util";
import {post, pseudoText} from "../client.mjs";

const {values} = parseArgs({options: {
    url: {type: "string", default: "http://127.0.0.1:8080"},
    tokens: {type: "string", default: "32768"},
    begin: {type: "string", default: "8192"},
    end: {type: "string", default: "16384"},
    question: {type: "string", default: "64"},
    turn: {type: "string", default: "200"},
    summary: {type: "string", default: "256"},
    cold: {type: "boolean", default: false},  // Also with nothing cached.
    vocab: {type: "string", default: "32000"}
}});
const [tokens, begin, end, question, turn, summary, vocab] =
    [values.tokens, values.begin, values.end, values.question, values.turn, values.summary, values.vocab].map(Number);

const text = (count, seed) => pseudoText(count, seed, vocab);

/** Time that the executor has computed so far; asked a moment later, as the engine tells it after it has answered. */
async function stepsMs() {
    await new Promise((resolve) => setTimeout(resolve, 100));
    const metrics = await (await fetch(`${values.url}/metrics`)).text();
    return 1000 * Number(/^kvist_step_seconds_total\S* (\S+)/m.exec(metrics)[1]);
}

/** @returns time over HTTP, inside the server to the first token, and of the steps alone. */
async function complete(prompt, {kvist = {}, maxTokens = 1} = {}) {
    const stepsBefore = await stepsMs();
    const {reply, ms} = await post(`${values.url}/v1/completions`,
        {prompt, max_tokens: maxTokens, temperature: 0, ignore_eos: true, kvist});
    return {ms, server_ttft_ms: reply.kvist.ttft_ms, steps_ms: await stepsMs() - stepsBefore,
        cached_tokens: reply.usage.prompt_tokens_details.cached_tokens};
}

/** Runs and keeps one measurement; long ones tell that they are done. */
async function measure(name, prompt, options) {
    result[name] = await complete(prompt, options);
    console.error(`${name}: ${Math.round(result[name].ms)} ms`);
}

const history = text(tokens, 1), ask = text(question, 2);
const before = history.slice(0, begin), after = history.slice(end);
const result = {tokens, begin, end, question, turn, summary};
await measure("first_read", history);  // The history as it was read and answered.
await measure("next_turn", [...history, ...text(turn, 3)]);
await measure("dropped", [...history, ...ask], {kvist: {drop: [{begin, end, at: tokens}]}});
await measure("whole", [...history, ...ask]);
await measure("reread", [...before, ...after, ...ask]);
result.ratio_to_reread = result.reread.ms / result.dropped.ms;
if (summary > 0) {
    // Written at the end of what is cached, then in place of what it stands for.
    await measure("summary_written", [...history, ...text(16, 4)], {maxTokens: summary});
    await measure("summary_read", [...before, ...text(summary, 5), ...after, ...ask]);
    result.ratio_to_summary = (result.summary_written.ms + result.summary_read.ms) / result.dropped.ms;
}
if (values.cold) {
    const kvist = {cache_salt: String(Math.random())};
    await measure("reread_without_cache", [...before, ...after, ...ask], {kvist});
}
console.log(JSON.stringify(result));
