#!/usr/bin/env node
// What `forget_below` lets go, and what that costs: chats in which facts and story text are told over several turns, then
// half of the facts are asked for, and at the end some that nobody has asked for yet. Against a running `kvist serve` with
// the small model. Prints one line of JSON for each threshold; messages of a kind are counted once for each question at
// which they could have been gone.
//
//   kvist serve models/default-f16.gguf --port 8080 & node bench/drop/fade.mjs --url http://127.0.0.1:8080 [--chats 12]
//        [--below 0.000001,0.4,0.45,0.5,0.6] [--cases models/eval.jsonl]

import {readFileSync} from "node:fs";
import {parseArgs} from "node:util";
import {post, random} from "../client.mjs";

const {values} = parseArgs({options: {
    url: {type: "string", default: "http://127.0.0.1:8080"},
    chats: {type: "string", default: "12"},
    below: {type: "string", default: "0.000001,0.4,0.45,0.5,0.6"},
    cases: {type: "string", default: "models/eval.jsonl"}
}});
const colors = "red blue green yellow white black brown purple orange silver golden pink gray violet crimson teal".split(" ");
const things = "vault chest safe box locker gate cabinet door case drawer trunk cage tower barn shed garage desk suitcase".split(" ");
const plan = ["asked", "story", "unasked", "story", "asked", "unasked", "story"];
const questions = 7, faintTurns = 3;

const sentences = readFileSync(values.cases, "utf8").trim().split("\n").map((line) => JSON.parse(line))
    .filter((one) => one.family === "story_qa" && one.length >= 1000)
    .flatMap((one) => one.messages.at(-1).content.replaceAll("\n", " ").split(". ").slice(0, -2))
    .map((sentence) => `${sentence.trim()}.`).filter((sentence) => sentence.length > 20 && sentence.length < 120);

/** Equal seeds, equal chats. */
function chat(seed) {
    const next = random(seed + 1), used = new Set();
    const draw = (below) => Math.floor(next() / 2 ** 32 * below);
    const story = (count) => {
        const first = draw(sentences.length - count);
        return sentences.slice(first, first + count).join(" ");
    };
    const fact = () => {
        let thing;
        do thing = `${colors[draw(colors.length)]} ${things[draw(things.length)]}`; while (used.has(thing));
        used.add(thing);
        const told = `The code of the ${thing} is ${String(1000 + draw(9000))}.`;
        return {told, question: `What is the code of the ${thing}?`};
    };
    const messages = [{role: "system", content: "You are a friendly assistant with a good memory."}];
    const told = [];  // {index, kind, facts}
    for (const kind of plan) {
        const facts = kind === "story" ? [] : Array.from({length: 4}, fact);
        const content = kind === "story" ? story(8) : facts.map((one) => `${one.told} ${story(1)}`).join(" ");
        told.push({index: messages.length, kind, facts});
        messages.push({role: "user", content}, {role: "assistant", content: kind === "story" ? "I see." : "Noted."});
    }
    return {messages, told};
}

async function ask(messages, session, below) {
    const {reply} = await post(`${values.url}/v1/chat/completions`,
        {messages, temperature: 0, max_tokens: 24, kvist: {session, forget_below: below}});
    return {text: reply.choices[0].message.content.trim(), seen: reply.kvist.messages};
}

const quantile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];

for (const below of values.below.split(",").map(Number)) {
    const result = {below, asked: {questions: 0, correct: 0}, unasked: {questions: 0, correct: 0}, gone: {}, could_be_gone: {}};
    const attention = {story: [], unasked: [], asked: []};
    for (let seed = 0; seed < Number(values.chats); ++seed) {
        const {messages, told} = chat(seed), session = `fade-${below}-${seed}-${process.pid}`;
        const askedMessages = told.filter((one) => one.kind === "asked");
        for (let turn = 0; turn < questions; ++turn) {
            const fact = askedMessages[turn % 2].facts[Math.floor(turn / 2)];
            messages.push({role: "user", content: fact.question});
            const {text, seen} = await ask(messages, session, below);
            messages.push({role: "assistant", content: text});
            ++result.asked.questions;
            result.asked.correct += text === fact.told;
            for (const {index, kind} of told) {
                const entry = seen.find((one) => one.message === index);
                if (turn >= faintTurns) {
                    result.could_be_gone[kind] = (result.could_be_gone[kind] ?? 0) + 1;
                    result.gone[kind] = (result.gone[kind] ?? 0) + (entry.dropped === "attention");
                }
                if (entry.attention !== undefined) attention[kind].push(entry.attention);
            }
        }
        for (const {facts} of told.filter((one) => one.kind === "unasked")) {
            const {text} = await ask([...messages, {role: "user", content: facts[0].question}], session, below);
            ++result.unasked.questions;
            result.unasked.correct += text === facts[0].told;
        }
    }
    result.attention = Object.fromEntries(Object.entries(attention).map(([kind, list]) => {
        const sorted = list.sort((a, b) => a - b);
        return [kind, [0, 0.5, 1].map((share) => quantile(sorted, share))];
    }));
    console.log(JSON.stringify(result));
}
