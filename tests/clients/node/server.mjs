// Where the server under test is, and small helpers.
//   KVIST_URL      address without /v1, e.g. http://127.0.0.1:8080
//   KVIST_MODEL    a served model; unset: the first that the server lists
//   KVIST_API_KEY  set when the server asks for one

import assert from "node:assert/strict";

import OpenAI from "openai";

if (!process.env.KVIST_URL) throw new Error("set KVIST_URL to the address of a running server");

export const base = process.env.KVIST_URL.replace(/\/$/, "");
export const key = process.env.KVIST_API_KEY;

/** No retries: an error is to be seen, not healed. */
export const clientWith = (apiKey) => new OpenAI({baseURL: `${base}/v1`, apiKey, maxRetries: 0, timeout: 120_000});
export const client = clientWith(key || "none");
export const model = process.env.KVIST_MODEL || (await client.models.list()).data[0].id;

export const question = [
    {role: "system", content: "Use only the text to answer."},
    {role: "user", content: "The purple key opens the shiny suitcase. Use the orange key for the small trunk. What does the orange key open?"}
];
export const greedy = {model, temperature: 0, max_tokens: 24};

/** Runs over a stream of chat or text chunks: {text, finish_reasons, usage, chunks}. */
export async function collect(stream) {
    const seen = {text: "", finish_reasons: [], usage: [], chunks: 0};
    for await (const chunk of stream) {
        seen.chunks++;
        if (chunk.usage) seen.usage.push({...chunk.usage, choices: chunk.choices.length});
        for (const choice of chunk.choices) {
            seen.text += choice.text ?? choice.delta.content ?? "";
            if (choice.finish_reason) seen.finish_reasons.push(choice.finish_reason);
        }
    }
    return seen;
}

/** Value of a gauge at /metrics, or undefined where the server has none of that name. */
export async function gauge(name) {
    const reply = await fetch(`${base}/metrics`, {headers: key ? {Authorization: `Bearer ${key}`} : {}});
    const line = reply.ok ? (await reply.text()).split("\n").find((l) => l.startsWith(name)) : undefined;
    return line === undefined ? undefined : Number(line.slice(line.lastIndexOf(" ") + 1));
}

/** Nobody listens any more: nothing may go on being computed. Where the server has no such gauges, returns at once. */
export async function idle() {
    const busy = async () => (await gauge("vllm:num_requests_running")) + (await gauge("vllm:num_requests_waiting"));
    if (await gauge("vllm:num_requests_running") === undefined) return;
    for (let i = 0; i < 100 && await busy() > 0; i++) await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(await busy(), 0);
}
