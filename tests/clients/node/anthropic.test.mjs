// Anthropic's client for Node against /v1/messages. The model may be weak: nothing here depends on a good answer.

import assert from "node:assert/strict";
import test from "node:test";

import Anthropic from "@anthropic-ai/sdk";

import {base, idle, key, model} from "./server.mjs";

const clientWith = (apiKey) => new Anthropic({baseURL: base, apiKey, maxRetries: 0, timeout: 120_000});
const client = clientWith(key || "none");
const ask = {model, max_tokens: 24, temperature: 0, system: "Use only the text to answer.", messages: [
    {role: "user", content: "The purple key opens the shiny suitcase. What does the purple key open?"}
]};
const weather = {name: "weather", description: "Weather of a place", input_schema: {type: "object", properties: {place: {type: "string"}}}};

test("a message is answered whole and streamed with the same text", async () => {
    const whole = await client.messages.create(ask);
    assert.equal(whole.type, "message");
    assert.equal(whole.role, "assistant");
    assert.equal(whole.content[0].type, "text");
    assert.ok(["end_turn", "max_tokens"].includes(whole.stop_reason));
    assert.ok(whole.usage.input_tokens + whole.usage.cache_read_input_tokens > 0);

    const stream = client.messages.stream(ask);
    let text = "";
    stream.on("text", (piece) => text += piece);
    const final = await stream.finalMessage();
    assert.equal(text, whole.content[0].text);
    assert.deepEqual(final.content.map((block) => block.text), whole.content.map((block) => block.text));
    assert.equal(final.stop_reason, whole.stop_reason);
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test("the second question reads only what is new", async () => {
    const messages = [...ask.messages];
    const first = await client.messages.create({...ask, messages});
    messages.push({role: "assistant", content: first.content}, {role: "user", content: "Which key was it?"});
    const second = await client.messages.create({...ask, messages});
    assert.ok(second.usage.cache_read_input_tokens > 0);
    assert.ok(second.usage.input_tokens < second.usage.cache_read_input_tokens);
});

test("a tool's result goes back as the next turn", async () => {
    const reply = await client.messages.create({...ask, tools: [weather], messages: [
        {role: "user", content: "How is the weather in Oslo?"},
        {role: "assistant", content: [
            {type: "text", text: "I look."}, {type: "tool_use", id: "toolu_1", name: "weather", input: {place: "Oslo"}}
        ]},
        {role: "user", content: [{type: "tool_result", tool_use_id: "toolu_1", content: "Snow, -3 degrees"}]}
    ]});
    assert.ok(reply.usage.output_tokens > 0);
});

test("tokens are counted without an answer", async () => {
    const {input_tokens: tokens} = await client.messages.countTokens({model, system: ask.system, messages: ask.messages});
    const {usage} = await client.messages.create(ask);
    assert.equal(tokens, usage.input_tokens + usage.cache_read_input_tokens);
});

test("errors have the client's types", async () => {
    await assert.rejects(client.messages.create({...ask, model: "no-such-model"}), Anthropic.NotFoundError);
    await assert.rejects(client.messages.create({...ask, messages: []}), Anthropic.BadRequestError);
    await assert.rejects(client.messages.create({...ask, temperature: 9}), (error) => {
        assert.ok(error instanceof Anthropic.BadRequestError);
        assert.equal(error.error.error.type, "invalid_request_error");
        return true;
    });
});

test("a wrong key is refused", {skip: key ? false : "the server asks for no key"}, async () => {
    await assert.rejects(clientWith("wrong").messages.create(ask), Anthropic.AuthenticationError);
});

test("a stream that is aborted is freed", async () => {
    const stream = client.messages.stream({...ask, max_tokens: 4000, kvist: {}, messages: [{role: "user", content: "Tell me a long story."}]});
    await assert.rejects(async () => {
        for await (const event of stream) {
            if (event.type === "content_block_delta") stream.abort();
        }
    }, Anthropic.APIUserAbortError);
    await idle();
});
