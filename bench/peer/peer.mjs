#!/usr/bin/env node
// Speed of kvist beside llama.cpp on the same file, threads and machine, in alternation; prints ratios (above 1: kvist is faster).
//
//   npm install --prefix bench/peer
//   node bench/peer/peer.mjs [--kvist build/kvist] [--threads N] [-p 512] [-n 64] [--rounds 5] MODEL.gguf ...
//
// llama.cpp comes from the npm package node-llama-cpp (prebuilt for this processor). It is measured with flash attention on and
// off, and the faster of the two counts. A setting that crashes is reported as such and is no win for anybody.

import {execFileSync, spawnSync} from "node:child_process";
import os from "node:os";
import {fileURLToPath} from "node:url";
import {parseArgs} from "node:util";

const {values, positionals} = parseArgs({
    allowPositionals: true,
    options: {
        kvist: {type: "string", default: fileURLToPath(new URL("../../build/kvist", import.meta.url))},
        threads: {type: "string", default: String(os.cpus().length)},
        p: {type: "string", short: "p", default: "512"},
        n: {type: "string", short: "n", default: "64"},
        rounds: {type: "string", default: "5"},
        "one-peer-run": {type: "string"}  // Internal: JSON of one measurement in a process of its own.
    }
});
const [threads, promptTokens, decodeTokens, rounds] = [values.threads, values.p, values.n, values.rounds].map(Number);

/** One measurement of llama.cpp: {prompt, decode} in tokens per second. */
async function peerRun({model: modelPath, flashAttention}) {
    const {getLlama, LlamaLogLevel} = await import("node-llama-cpp");
    const llama = await getLlama({gpu: false, build: "never", maxThreads: threads, logLevel: LlamaLogLevel.error});
    const model = await llama.loadModel({modelPath});
    const context = await model.createContext({
        contextSize: Math.max(promptTokens, decodeTokens) + 64, batchSize: promptTokens, threads, flashAttention
    });
    const sequence = context.getSequence();
    const tokens = Array.from({length: promptTokens}, (_, i) => 100 + (i * 7919) % 3000);
    const timed = async (count, work) => {
        const start = process.hrtime.bigint();
        await work();
        return count / (Number(process.hrtime.bigint() - start) * 1e-9);
    };
    const prompt = () => sequence.evaluateWithoutGeneratingNewTokens(tokens);
    const decode = async () => {
        let left = decodeTokens;
        for await (const _ of sequence.evaluate([tokens[0]], {temperature: 0, yieldEogToken: true})) if (--left === 0) break;
    };
    await prompt();  // Warm-up, not counted.
    await sequence.clearHistory();
    const promptSpeed = await timed(promptTokens, prompt);
    await sequence.clearHistory();
    const decodeSpeed = await timed(decodeTokens, decode);
    console.log(JSON.stringify({prompt: promptSpeed, decode: decodeSpeed, release: llama.llamaCppRelease?.release ?? "?"}));
    process.exit(0);
}

function measurePeer(model, flashAttention) {
    const result = spawnSync(process.execPath, [
        fileURLToPath(import.meta.url), "--threads", values.threads, "-p", values.p, "-n", values.n,
        "--one-peer-run", JSON.stringify({model, flashAttention})
    ], {encoding: "utf8", timeout: 600_000});
    const line = result.stdout?.trim().split("\n").pop();
    return result.status === 0 && line ? JSON.parse(line) : null;
}

function measureKvist(model) {
    const output = execFileSync(values.kvist, [
        "bench", model, "-p", values.p, "-n", values.n, "-t", values.threads, "-r", "1", "--json"
    ], {encoding: "utf8", stdio: ["ignore", "pipe", "ignore"]});
    const [prompt, decode] = output.trim().split("\n").map((line) => JSON.parse(line));
    return {prompt: prompt.tokens_per_s.median, decode: decode.tokens_per_s.median, isa: prompt.isa, type: prompt.type};
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const range = (list) => `${Math.min(...list).toFixed(2)} to ${Math.max(...list).toFixed(2)}`;

function compare(model) {
    const ours = [], peers = {on: [], off: []};
    let release = "?", crashes = 0;
    for (let round = 0; round < rounds; round++) {
        ours.push(measureKvist(model));
        for (const [name, flag] of [["on", true], ["off", false]]) {
            const result = measurePeer(model, flag);
            if (result === null) crashes++;
            else peers[name].push(result), release = result.release;
        }
    }
    for (const what of ["prompt", "decode"]) {
        const best = Object.entries(peers).filter(([, runs]) => runs.length === rounds)
            .sort((a, b) => median(b[1].map((r) => r[what])) - median(a[1].map((r) => r[what])))[0];
        const label = what === "prompt" ? `pp${promptTokens}` : `tg${decodeTokens}`;
        if (best === undefined) {
            console.log(`${model}\t${label}\tthe peer crashed in ${crashes} of ${2 * rounds} runs: no ratio`);
            continue;
        }
        const ratios = ours.map((run, i) => run[what] / best[1][i][what]);
        console.log([
            model, label, `kvist ${median(ours.map((r) => r[what])).toFixed(1)}`,
            `llama.cpp ${median(best[1].map((r) => r[what])).toFixed(1)}`, `ratio ${median(ratios).toFixed(2)} (${range(ratios)})`,
            `${ours[0].type}, ${ours[0].isa}, ${threads} threads, llama.cpp ${release}, flash attention ${best[0]}`
        ].join("\t"));
    }
}

if (values["one-peer-run"]) await peerRun(JSON.parse(values["one-peer-run"]));
else if (positionals.length === 0) console.error("name at least one model file"), process.exit(2);
else positionals.forEach(compare);
