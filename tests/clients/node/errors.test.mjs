// Errors and cancellation through OpenAI's client for Node.

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI from "openai";

import {client, clientWith, greedy, idle, key, model, question} from "./server.mjs";

const long = {model, prompt: "Once upon a time", temperature: 0, max_tokens: 2000, ignore_eos: true, stream: true};

test("an unknown model and an unknown path are not found", async () => {
    const wrong = {...greedy, model: "no-such-model", messages: question};
    await assert.rejects(client.chat.completions.create(wrong), (error) => {
        assert.ok(error instanceof OpenAI.NotFoundError, String(error));
        assert.equal(error.code, "model_not_found");
        assert.match(error.message, /no-such-model/);
        return true;
    });
    await assert.rejects(client.chat.completions.create({...wrong, stream: true}), OpenAI.NotFoundError);
    await assert.rejects(client.models.retrieve("no-such-model"), OpenAI.NotFoundError);
    await assert.rejects(client.get("/no-such-path"), OpenAI.NotFoundError);
});

test("a bad parameter is named", async () => {
    const cases = [
        ["temperature", {temperature: "hot"}], ["temperature", {temperature: 9}], ["top_p", {top_p: -1}],
        ["max_tokens", {max_tokens: -1}], ["messages", {messages: undefined}], ["messages", {messages: []}],
        ["messages", {messages: "hello"}], ["stop", {stop: [5]}], ["top_logprobs", {top_logprobs: 2}],
        ["logit_bias", {logit_bias: {abc: 1}}], ["stream_options", {stream_options: {include_usage: true}}]
    ];
    for (const [param, change] of cases) {
        await assert.rejects(client.chat.completions.create({...greedy, messages: question, ...change}), (error) => {
            assert.ok(error instanceof OpenAI.BadRequestError, `${param}: ${error}`);
            assert.equal(error.type, "invalid_request_error");
            assert.ok(error.param?.startsWith(param), `${JSON.stringify(change)} was blamed on ${error.param}`);
            return true;
        });
    }
});

test("a prompt longer than the context is refused", async (t) => {
    const {max_model_len: length} = await client.models.retrieve(model);
    if (length === undefined || length > 100_000) return t.skip("the model's context is not small");
    await assert.rejects(client.completions.create({...greedy, prompt: Array(length + 1).fill(40)}), (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError, String(error));
        assert.equal(error.code, "context_length_exceeded");
        return true;
    });
});

test("a missing or wrong key is refused", {skip: key ? false : "the server asks for no key"}, async () => {
    await assert.rejects(clientWith("wrong").models.list(), OpenAI.AuthenticationError);
    await assert.rejects(clientWith("wrong").chat.completions.create({...greedy, messages: question}), OpenAI.AuthenticationError);
    await assert.rejects(clientWith("x").models.list({headers: {Authorization: null}}), OpenAI.AuthenticationError);
});

test("a stream that is left is freed, and the next request works", async () => {
    const before = (await client.completions.create({...greedy, prompt: "Once upon a time"})).choices[0].text;
    const leave = async () => {
        const stream = await client.completions.create(long);
        let chunks = 0;
        for await (const _ of stream) {
            if (++chunks === 3) break;  // The client aborts the connection.
        }
        assert.equal(chunks, 3);
    };
    await Promise.all(Array.from({length: 8}, leave));

    await idle();
    const after = (await client.completions.create({...greedy, prompt: "Once upon a time"})).choices[0].text;
    assert.equal(after, before);
});

test("an abort reaches the caller, before and during a stream", async () => {
    const whole = new AbortController();
    setTimeout(() => whole.abort(), 100);
    await assert.rejects(client.completions.create({...long, stream: false}, {signal: whole.signal}), OpenAI.APIUserAbortError);

    const stream = await client.completions.create(long);
    let chunks = 0;
    for await (const _ of stream) {
        if (++chunks === 2) stream.controller.abort();
        assert.ok(chunks < 1000, "the stream ends soon after it was aborted");
    }
    const reply = await client.completions.create({...greedy, prompt: "Once upon a time"});
    assert.ok(reply.choices[0].text.length > 0);
});
