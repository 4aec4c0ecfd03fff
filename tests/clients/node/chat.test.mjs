// Chat completions, text completions and models through OpenAI's client for Node. The model may be weak: nothing here depends on
// a good answer.

import assert from "node:assert/strict";
import test from "node:test";

import {client, collect, greedy, model, question} from "./server.mjs";

function checkUsage(usage) {
    assert.ok(usage.prompt_tokens > 0);
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.ok(usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens);
}

test("models are listed and found by name", async () => {
    const listed = [];
    for await (const entry of client.models.list()) listed.push(entry.id);
    assert.ok(listed.includes(model));
    const found = await client.models.retrieve(model);
    assert.equal(found.id, model);
    assert.equal(found.object, "model");
});

test("a chat is answered whole and streamed with the same text", async () => {
    const whole = await client.chat.completions.create({...greedy, messages: question});
    assert.equal(whole.object, "chat.completion");
    assert.equal(whole.model, model);
    assert.equal(whole.choices.length, 1);
    assert.equal(whole.choices[0].message.role, "assistant");
    assert.ok(whole.choices[0].message.content.length > 0);
    assert.ok(["stop", "length"].includes(whole.choices[0].finish_reason));
    checkUsage(whole.usage);

    const seen = await collect(await client.chat.completions.create(
        {...greedy, messages: question, stream: true, stream_options: {include_usage: true}}));
    assert.equal(seen.text, whole.choices[0].message.content);
    assert.deepEqual(seen.finish_reasons, [whole.choices[0].finish_reason]);
    assert.ok(seen.chunks > 3, "the text came in pieces");
    assert.equal(seen.usage.length, 1);
    assert.equal(seen.usage[0].choices, 0, "usage comes in a chunk of its own");
    assert.equal(seen.usage[0].completion_tokens, whole.usage.completion_tokens);
    assert.equal(seen.usage[0].prompt_tokens, whole.usage.prompt_tokens);
    checkUsage(seen.usage[0]);
});

test("usage stays away from a stream that did not ask for it", async () => {
    const seen = await collect(await client.chat.completions.create({...greedy, messages: question, stream: true}));
    assert.deepEqual(seen.usage, []);
    assert.equal(seen.finish_reasons.length, 1);
});

test("the client's own stream helper assembles the message", async () => {
    const runner = client.chat.completions.stream({...greedy, messages: question});
    const final = await runner.finalChatCompletion();
    const whole = await client.chat.completions.create({...greedy, messages: question});
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
});

test("content may be a list of text parts", async () => {
    const parts = question.map((m) => ({...m, content: [{type: "text", text: m.content}]}));
    const [a, b] = await Promise.all([question, parts].map((messages) => client.chat.completions.create({...greedy, messages})));
    assert.equal(b.choices[0].message.content, a.choices[0].message.content);
});

test("a text is completed whole and streamed with the same text", async () => {
    const request = {...greedy, prompt: "Once upon a time, a kind boy named Ben"};
    const whole = await client.completions.create(request);
    assert.equal(whole.object, "text_completion");
    assert.ok(whole.choices[0].text.length > 0);
    checkUsage(whole.usage);
    const seen = await collect(await client.completions.create({...request, stream: true, stream_options: {include_usage: true}}));
    assert.equal(seen.text, whole.choices[0].text);
    assert.deepEqual(seen.finish_reasons, [whole.choices[0].finish_reason]);
    assert.equal(seen.usage[0].completion_tokens, whole.usage.completion_tokens);
});

test("a prompt may be token ids", async () => {
    const reply = await client.completions.create({...greedy, max_tokens: 3, prompt: [1, 40, 41, 42]});
    assert.equal(reply.usage.prompt_tokens, 4);
});

test("max_tokens and max_completion_tokens end a text by length", async () => {
    for (const limit of [{max_tokens: 5}, {max_completion_tokens: 5}]) {
        const reply = await client.chat.completions.create(
            {model, temperature: 0, messages: question, ...limit, ignore_eos: true});
        assert.equal(reply.choices[0].finish_reason, "length");
        assert.equal(reply.usage.completion_tokens, 5);
    }
});

test("a stop string ends the text before itself, whole and streamed", async () => {
    const request = {...greedy, prompt: "Once upon a time, a kind boy named Ben"};
    const full = (await client.completions.create(request)).choices[0].text;
    assert.ok(full.length >= 12, full);
    const stop = full.slice(6, 11);  // Begins and ends inside tokens.
    const wanted = full.slice(0, full.indexOf(stop));
    const whole = await client.completions.create({...request, stop});
    assert.equal(whole.choices[0].text, wanted);
    assert.equal(whole.choices[0].finish_reason, "stop");
    const seen = await collect(await client.completions.create({...request, stop: ["\u0001 never", stop], stream: true}));
    assert.equal(seen.text, wanted);
    assert.deepEqual(seen.finish_reasons, ["stop"]);
});

test("the same seed gives the same text, other seeds other texts", async () => {
    const ask = async (seed) => (await client.completions.create(
        {model, prompt: "Once upon a time", temperature: 1.3, max_tokens: 24, seed})).choices[0].text;
    assert.equal(await ask(7), await ask(7));
    const texts = await Promise.all([1, 2, 3, 4, 5, 6].map(ask));
    assert.ok(new Set(texts).size > 1, "six seeds, one text");
});

test("log probabilities of a chat", async () => {
    const reply = await client.chat.completions.create(
        {...greedy, max_tokens: 6, messages: question, logprobs: true, top_logprobs: 3, n: 1});
    const {content} = reply.choices[0].logprobs;
    assert.equal(content.length, reply.usage.completion_tokens);
    for (const entry of content) {
        assert.ok(entry.logprob <= 0);
        assert.equal(entry.top_logprobs.length, 3);
        assert.equal(entry.top_logprobs[0].token, entry.token, "greedy takes the most likely");
        const sorted = [...entry.top_logprobs].sort((a, b) => b.logprob - a.logprob);
        assert.deepEqual(entry.top_logprobs, sorted);
        const sum = entry.top_logprobs.reduce((s, t) => s + Math.exp(t.logprob), 0);
        assert.ok(sum <= 1 + 1e-3, `three of many sum to ${sum}`);
    }
    if (reply.choices[0].finish_reason === "length") {
        const text = Buffer.from(content.flatMap((entry) => entry.bytes)).toString("utf8");
        assert.equal(text.trim(), reply.choices[0].message.content.trim());
    }
});

test("log probabilities of a text", async () => {
    const reply = await client.completions.create({...greedy, max_tokens: 5, prompt: "Once upon a time", logprobs: 2});
    const {tokens, token_logprobs, top_logprobs, text_offset} = reply.choices[0].logprobs;
    const count = reply.usage.completion_tokens;
    assert.deepEqual([tokens.length, token_logprobs.length, top_logprobs.length, text_offset.length], [count, count, count, count]);
    assert.ok(token_logprobs.every((p) => p <= 0));
    assert.ok(text_offset.every((offset, i) => i === 0 || offset >= text_offset[i - 1]));
});

test("eight requests at once give the texts that each gives alone", async () => {
    const prompts = ["Once upon a time", "The red door", "Every day, Ben", "A dog slept", "In the morning", "Her best friend", "The wind",
        "Use the orange key"];
    const ask = async (prompt) => (await client.completions.create({...greedy, max_tokens: 32, prompt})).choices[0].text;
    const together = await Promise.all(prompts.map(ask));
    for (const [i, prompt] of prompts.entries()) assert.equal(await ask(prompt), together[i], prompt);
});
