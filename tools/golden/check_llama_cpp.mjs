#!/usr/bin/env node
// Holds golden files against llama.cpp (through the npm package node-llama-cpp), a third implementation: it reads the same GGUF
// files, so it catches a mistake that the writer and the reader of oracle.py would share.
//
//   npm install --prefix DIR node-llama-cpp@3.21.1
//   node check_llama_cpp.mjs DIR/node_modules/node-llama-cpp [--models DIR] tests/golden/*.json
//
// Random models: the error of the logits relative to their deviation, and how many argmaxes agree. Real weights: also token ids,
// greedy steps (each after the golden text before it) and perplexity. Exit status 1 where a model does not load or differs more
// than its arithmetic explains; a model whose file is not there is left out.

import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";

const [packageDir, ...files] = process.argv.slice(2);
const modelDirs = [new URL("../../models", import.meta.url).pathname];
if (files[0] === "--models") modelDirs.push(files.splice(0, 2)[1]);
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(path.join(packageDir, "dist/index.js")));
const llama = await getLlama({gpu: false, build: "never", maxThreads: 2, logLevel: LlamaLogLevel.error});

// llama.cpp rounds activations as it likes for a weight type: to 8 bits for quantised ones, to bfloat16 for that; its GELU is a
// table of 16-bit floats. Keys and values stay 32-bit here. What remains for the other models is the order of additions.
function limitOf(file) {
    if (/^(i?q\d_|mxfp4)/.test(file)) return 0.04;
    // Expert products round activations to 16 bits where weights have them. Where they are rounded to 8 bits, a token may choose
    // other experts.
    if (/^qwen3moe/.test(file)) return /q4_0/.test(file) ? 0.12 : 2e-3;
    if (/q4_|q8_/i.test(file)) return 0.06;
    return {"bf16.gguf": 0.02, "gemma3.gguf": 2e-3}[file] ?? 1e-5;
}

// What llama.cpp does not read, so that its logits are others.
const UNREAD = {
    "phi3.gguf": "phi3.attention.sliding_window",
    "qwen3moe_one.gguf": "qwen3moe.expert_weights_norm",
};

const EXACT = {flashAttention: false, swaFullCache: true, experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"};
const SLICE = 32;  // Positions whose distributions are in memory at once: vocabularies are large.

/** Calls visit(position, Map from token to probability, most likely first) for every position of `tokens`. */
async function evaluate(model, tokens, visit) {
    const context = await model.createContext({contextSize: Math.max(256, tokens.length), batchSize: 128, threads: 2, ...EXACT});
    const sequence = context.getSequence();
    for (let begin = 0; begin < tokens.length; begin += SLICE) {
        const input = tokens.slice(begin, begin + SLICE)
            .map((token) => [token, {generateNext: {probabilities: true, options: {temperature: 0}}}]);
        const results = await sequence.controlledEvaluate(input);
        results.forEach((result, i) => visit(begin + i, result.next.probabilities));
    }
    await context.dispose();
}

const mostLikely = (probabilities) => probabilities.keys().next().value;

/** RMS of the difference over `scale`, or over RMS of the wanted values, all about their means: probabilities know logits up to a
 *  constant. */
function relativeRms(got, want, scale) {
    const mean = (v) => v.reduce((a, b) => a + b, 0) / v.length;
    const [g, w] = [mean(got), mean(want)];
    let error = 0, size = 0;
    for (let i = 0; i < got.length; i++) {
        error += (got[i] - g - (want[i] - w)) ** 2;
        size += (want[i] - w) ** 2;
    }
    return Math.sqrt(error / got.length) / (scale ?? Math.sqrt(size / got.length));
}

/** Error of the logits that a golden file keeps, at the worst of its positions, and agreement of all argmaxes. */
async function checkLogits(model, {tokens, argmax, positions, logits, idsAt, scales}) {
    let worst = 0, same = 0;
    await evaluate(model, tokens, (position, probabilities) => {
        if (mostLikely(probabilities) === argmax[position]) same++;
        const row = positions.indexOf(position);
        if (row >= 0) worst = Math.max(worst, relativeRms(idsAt(row).map((id) => Math.log(probabilities.get(id))), logits[row], scales?.[row]));
    });
    return {worst, text: `error ${worst.toExponential(1)}  argmax ${same} of ${tokens.length}`};
}

async function checkGreedy(model, {tokens, ids, margins}) {
    const differs = [];
    await evaluate(model, [...tokens, ...ids.slice(0, -1)], (position, probabilities) => {
        const step = position - tokens.length + 1;
        if (step >= 0 && mostLikely(probabilities) !== ids[step]) differs.push(`${step} (margin ${margins[step]})`);
    });
    return `greedy: ${ids.length - differs.length} of ${ids.length} steps` + (differs.length ? `, not ${differs.join(", ")}` : "");
}

async function perplexity(model, tokens) {
    let sum = 0;
    await evaluate(model, tokens, (position, probabilities) => {
        if (position + 1 < tokens.length) sum -= Math.log(probabilities.get(tokens[position + 1]));
    });
    return Math.exp(sum / (tokens.length - 1));
}

async function checkReal(model, golden) {
    const sameIds = ({text, tokens}) =>
        [...golden.leading_tokens, ...model.tokenize(text, true)].join() === tokens.join();
    const texts = [golden.logits, ...golden.greedy];
    console.log(`  token ids: ${texts.filter(sameIds).length} of ${texts.length} texts`);
    for (const text of golden.greedy) console.log(`  ${await checkGreedy(model, text)}`);
    const theirs = await perplexity(model, golden.perplexity.tokens), ours = golden.perplexity.perplexity;
    console.log(`  perplexity ${theirs.toFixed(4)}, golden ${ours.toFixed(4)} (${((theirs / ours - 1) * 100).toFixed(3)} %)`);
    return texts.every(sameIds) && Math.abs(theirs / ours - 1) < 0.005;
}

async function check(file) {
    const golden = JSON.parse(fs.readFileSync(file, "utf8"));
    const modelPath = [path.dirname(file), ...modelDirs].map((dir) => path.join(dir, golden.file)).find(fs.existsSync);
    if (modelPath === undefined) {
        console.log(`${golden.file.padEnd(32)} not found, left out`);
        return true;
    }
    if (UNREAD[golden.file] !== undefined) {
        console.log(`${golden.file.padEnd(32)} left out: llama.cpp does not read ${UNREAD[golden.file]}`);
        return true;
    }
    const model = await llama.loadModel({modelPath, gpuLayers: 0});
    const real = golden.perplexity !== undefined;
    const {logits} = golden;
    const kept = real ? {...logits, logits: logits.top_logits, idsAt: (row) => logits.top_ids[row], scales: logits.deviation}
        : {...golden, idsAt: () => golden.ids};
    const {worst, text} = await checkLogits(model, kept);
    const ok = worst < limitOf(golden.file);
    console.log(`${golden.file.padEnd(32)} ${text}  ${ok ? "ok" : "DIFFERS"}`);
    const realOk = !real || await checkReal(model, golden);
    await model.dispose();
    return ok && realOk;
}

let failed = 0;
for (const file of files) {
    try {
        if (!await check(file)) failed++;
    } catch (error) {
        console.log(`${path.basename(file)}: ${error}`);
        failed++;
    }
}
await llama.dispose();
process.exitCode = failed ? 1 : 0;
