// The Responses API through OpenAI's client for Node.

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI from "openai";

import {client, idle, model} from "./server.mjs";

const ask = {model, temperature: 0, max_output_tokens: 24, instructions: "Use only the text to answer.",
    input: "The purple key opens the shiny suitcase. What does the purple key open?"};

test("a response comes whole and streamed with the same text", async () => {
    const whole = await client.responses.create(ask);
    assert.ok(whole.output_text.length > 0);
    assert.ok(["completed", "incomplete"].includes(whole.status));
    assert.ok(whole.usage.input_tokens > 0);
    const stream = client.responses.stream(ask);
    let text = "";
    stream.on("response.output_text.delta", (event) => text += event.delta);
    const final = await stream.finalResponse();
    assert.equal(text, whole.output_text);
    assert.equal(final.output[0].content[0].text, whole.output_text);
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test("a response goes on from an earlier one, which can be read and deleted", async () => {
    const first = await client.responses.create(ask);
    const next = await client.responses.create({...ask, input: "Which key was it?", previous_response_id: first.id});
    assert.ok(next.usage.input_tokens > first.usage.input_tokens);
    assert.ok(next.usage.input_tokens_details.cached_tokens > 0);
    assert.equal((await client.responses.retrieve(first.id)).output_text, first.output_text);
    await client.responses.delete(first.id);
    await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
    await assert.rejects(client.responses.create({...ask, previous_response_id: first.id}), OpenAI.NotFoundError);
});

test("calls and results are items of the input", async () => {
    const reply = await client.responses.create({...ask, tools: [{type: "function", name: "weather", parameters: {type: "object", properties: {}}, strict: false}], input: [
        {role: "user", content: "How is the weather in Oslo?"},
        {type: "function_call", call_id: "call_1", name: "weather", arguments: "{\"place\":\"Oslo\"}"},
        {type: "function_call_output", call_id: "call_1", output: "Snow"}
    ]});
    assert.ok(reply.usage.output_tokens > 0);
});

test("what is not supported is refused", async () => {
    for (const change of [{background: true}, {truncation: "auto"}, {tools: [{type: "web_search"}]}, {input: []}]) {
        await assert.rejects(client.responses.create({...ask, ...change}), OpenAI.BadRequestError, JSON.stringify(change));
    }
});

test("a stream that is aborted is freed", async () => {
    const stream = await client.responses.create({...ask, max_output_tokens: 4000, stream: true});
    for await (const event of stream) {
        if (event.type === "response.output_text.delta") stream.controller.abort();
    }
    await idle();
});
