// Ollama's client for Node. The model may be weak: nothing here depends on a good answer.

import assert from "node:assert/strict";
import test from "node:test";

import {Ollama} from "ollama";

import {base, idle, key, model} from "./server.mjs";

const client = new Ollama({host: base, headers: key ? {Authorization: `Bearer ${key}`} : {}});
const options = {temperature: 0, num_predict: 24};
const messages = [{role: "user", content: "The purple key opens the shiny suitcase. What does the purple key open?"}];

test("the model is listed and shown", async () => {
    const {models} = await client.list();
    assert.equal(models[0].name, model.includes(":") ? model : `${model}:latest`);
    const shown = await client.show({model: models[0].name});
    assert.ok(shown.capabilities.includes("completion"));
    assert.equal((await client.ps()).models.length, 1);
    assert.ok((await client.version()).version.length > 0);
});

test("a chat is answered whole and streamed with the same text", async () => {
    const whole = await client.chat({model, messages, options});
    assert.equal(whole.message.role, "assistant");
    assert.equal(whole.done, true);
    assert.ok(whole.prompt_eval_count > 0 && whole.eval_count > 0 && whole.total_duration > 0);
    let text = "", last;
    for await (const part of await client.chat({model, messages, options, stream: true})) {
        text += part.message.content;
        last = part;
    }
    assert.equal(text, whole.message.content);
    assert.equal(last.done, true);
    assert.equal(last.done_reason, whole.done_reason);
    assert.equal(last.eval_count, whole.eval_count);
});

test("a text is generated, with the template and raw", async () => {
    const reply = await client.generate({model, prompt: messages[0].content, system: "Be brief.", options});
    assert.ok(reply.response.length > 0);
    const raw = await client.generate({model, prompt: "Once upon a time", raw: true, options});
    assert.equal(raw.prompt_eval_count, (await client.generate({model, prompt: "Once upon a time", raw: true, options})).prompt_eval_count);
    assert.equal(raw.eval_count, raw.done_reason === "length" ? 24 : raw.eval_count);
});

test("a tool's result goes back as the next turn", async () => {
    const tools = [{type: "function", function: {name: "weather", description: "", parameters: {type: "object", properties: {}}}}];
    const reply = await client.chat({model, options, tools, messages: [
        {role: "user", content: "How is the weather in Oslo?"},
        {role: "assistant", content: "", tool_calls: [{function: {name: "weather", arguments: {place: "Oslo"}}}]},
        {role: "tool", tool_name: "weather", content: "Snow, -3 degrees"}
    ]});
    assert.ok(reply.eval_count > 0);
});

test("errors are told", async () => {
    await assert.rejects(client.chat({model: "no-such-model", messages}), /no-such-model/);
    await assert.rejects(client.chat({model, messages: [{role: "user", content: "x", images: ["aGk="]}]}), /images/);
});

test("a stream that is aborted is freed", async () => {
    const stream = await client.chat({model, messages, stream: true, options: {num_predict: 4000}});
    await assert.rejects(async () => {
        for await (const part of stream) {
            if (part.message.content) stream.abort();
        }
    }, {name: "AbortError"});
    await idle();
});
