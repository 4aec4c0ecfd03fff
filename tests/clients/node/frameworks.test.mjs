// Vercel's AI SDK and LangChain.js, as agents use them. The model may be weak: nothing here depends on a good answer.

import assert from "node:assert/strict";
import test from "node:test";

import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {AIMessage, HumanMessage, SystemMessage, ToolMessage} from "@langchain/core/messages";
import {ChatOpenAI} from "@langchain/openai";
import {generateText, streamText, tool} from "ai";
import {z} from "zod";

import {base, idle, key, model} from "./server.mjs";

const question = "The purple key opens the shiny suitcase. What does the purple key open?";
const provider = createOpenAICompatible({name: "kvist", baseURL: `${base}/v1`, apiKey: key || "none", includeUsage: true});
const settings = {model: provider(model), temperature: 0, maxOutputTokens: 24, maxRetries: 0};
const weather = tool({description: "Weather of a place", inputSchema: z.object({place: z.string()}), execute: async () => "Snow"});

test("AI SDK: a text is generated whole and streamed", async () => {
    const whole = await generateText({...settings, system: "Use only the text.", prompt: question});
    assert.ok(whole.text.length > 0);
    assert.ok(whole.usage.inputTokens > 0 && whole.usage.outputTokens > 0);
    const streamed = streamText({...settings, system: "Use only the text.", prompt: question});
    let text = "";
    for await (const piece of streamed.textStream) text += piece;
    assert.equal(text, whole.text);
    assert.equal((await streamed.usage).outputTokens, whole.usage.outputTokens);
});

test("AI SDK: calls and results go round", async () => {
    const {text, finishReason} = await generateText({...settings, tools: {weather}, messages: [
        {role: "user", content: "How is the weather in Oslo?"},
        {role: "assistant", content: [{type: "tool-call", toolCallId: "call_1", toolName: "weather", input: {place: "Oslo"}}]},
        {role: "tool", content: [{type: "tool-result", toolCallId: "call_1", toolName: "weather", output: {type: "text", value: "Snow"}}]}
    ]});
    assert.equal(typeof text, "string");
    assert.ok(["stop", "length", "tool-calls"].includes(finishReason));
});

test("AI SDK: an abort ends the stream and frees it", async () => {
    const aborter = new AbortController();
    const {fullStream} = streamText({...settings, maxOutputTokens: 4000, prompt: question, abortSignal: aborter.signal});
    const kinds = new Set();
    for await (const part of fullStream) {
        kinds.add(part.type);
        if (part.type === "text-delta") aborter.abort();
    }
    assert.ok(kinds.has("abort"), [...kinds].join());
    await idle();
});

const chat = (more = {}) => new ChatOpenAI({model, apiKey: key || "none", temperature: 0, maxTokens: 24, maxRetries: 0,
    configuration: {baseURL: `${base}/v1`}, ...more});

test("LangChain: a chat is invoked and streamed with the same text", async () => {
    const messages = [new SystemMessage("Use only the text."), new HumanMessage(question)];
    const whole = await chat().invoke(messages);
    assert.ok(whole.content.length > 0);
    assert.ok(whole.usage_metadata.output_tokens > 0);
    let text = "";
    for await (const piece of await chat().stream(messages)) text += piece.content;
    assert.equal(text, whole.content);
});

test("LangChain: calls and results go round", async () => {
    const reply = await chat().bindTools([{type: "function", function: {name: "weather", parameters: {type: "object", properties: {}}}}]).invoke([
        new HumanMessage("How is the weather in Oslo?"),
        new AIMessage({content: "", tool_calls: [{id: "call_1", name: "weather", args: {place: "Oslo"}}]}),
        new ToolMessage({content: "Snow", tool_call_id: "call_1"})
    ]);
    assert.ok(reply.usage_metadata.output_tokens > 0);
});

test("LangChain: the Responses API", async () => {
    const reply = await chat({useResponsesApi: true}).invoke([new HumanMessage(question)]);
    assert.ok(reply.text.length > 0);
    const aborter = new AbortController();
    const stream = await chat({useResponsesApi: true, maxTokens: 4000}).stream([new HumanMessage(question)], {signal: aborter.signal});
    await assert.rejects(async () => {
        for await (const _ of stream) aborter.abort();
    });
    await idle();
});
