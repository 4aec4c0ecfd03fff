#!/usr/bin/env node
// Holds golden files against llama.cpp (through the npm package node-llama-cpp), a third implementation: it reads the same GGUF
// files, so it catches a mistake that the writer and the reader of oracle.py would share.
//
//   npm install --prefix DIR node-llama-cpp@3.21.1
//   node check_llama_cpp.mjs DIR/node_modules/node-llama-cpp tests/golden/*.json
//
// Prints for each model the error of its logits relative to their deviation, and how many argmaxes agree. Exit status 1 where a
// model does not load or differs more than its arithmetic explains.

import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";

const [packageDir, ...files] = process.argv.slice(2);
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(path.join(packageDir, "dist/index.js")));
const llama = await getLlama({gpu: false, build: "never", maxThreads: 2, logLevel: LlamaLogLevel.error});

// llama.cpp rounds activations as it likes for a weight type: to 8 bits for quantised ones, to bfloat16 for that; its GELU is a
// table of 16-bit floats. Keys and values stay 32-bit here. What remains for the other models is the order of additions.
function limitOf(file) {
    if (/^q\d_/.test(file)) return 0.04;
    return {"bf16.gguf": 0.02, "gemma3.gguf": 2e-3}[file] ?? 1e-5;
}

function probabilitiesAt(results, position) {
    const map = results[position].next.probabilities;
    if (map == null) throw new Error(`no probabilities at position ${position}`);
    return map;
}

/** RMS of the difference over RMS of the wanted values, both about their means: probabilities know logits up to a constant. */
function relativeRms(got, want) {
    const mean = (v) => v.reduce((a, b) => a + b, 0) / v.length;
    const [g, w] = [mean(got), mean(want)];
    let error = 0, size = 0;
    for (let i = 0; i < got.length; i++) {
        error += (got[i] - g - (want[i] - w)) ** 2;
        size += (want[i] - w) ** 2;
    }
    return Math.sqrt(error / size);
}

async function check(file) {
    const golden = JSON.parse(fs.readFileSync(file, "utf8"));
    const model = await llama.loadModel({modelPath: path.join(path.dirname(file), golden.file), gpuLayers: 0});
    const context = await model.createContext({
        contextSize: 256, batchSize: 128, threads: 2, flashAttention: false, swaFullCache: true,
        experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"
    });
    const input = golden.tokens.map((token) => [token, {generateNext: {probabilities: true, options: {temperature: 0}}}]);
    const results = await context.getSequence().controlledEvaluate(input);

    const errors = golden.positions.map((position, row) => {
        const p = probabilitiesAt(results, position);
        return relativeRms(golden.ids.map((id) => Math.log(p.get(id))), golden.logits[row]);
    });
    const best = golden.tokens.map((_, position) => probabilitiesAt(results, position).keys().next().value);
    const same = best.filter((id, position) => id === golden.argmax[position]).length;
    await context.dispose();
    await model.dispose();

    const worst = Math.max(...errors), ok = worst < limitOf(golden.file);
    console.log(`${golden.file.padEnd(22)} error ${worst.toExponential(1)}  argmax ${same} of ${best.length}  ${ok ? "ok" : "DIFFERS"}`);
    return ok;
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
