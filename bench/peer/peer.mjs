#!/usr/bin/env node
// Speed of kvist beside llama.cpp on the same file, threads and machine, in alternation; prints ratios (above 1: kvist is faster).
//
//   LLAMA_BENCH="/path/llama-bench" node bench/peer/peer.mjs [--kvist build/kvist] [--threads N] [-p 512] [-n 64] [--depth 0]
//                                                            [--batch 1] [--kv-type f16] [--rounds 5] [--isa NAME] MODEL.gguf ...
//
// LLAMA_BENCH is llama.cpp's own benchmark program, that of a fork, or a command with its flags and JSON (llama_bench.py).
// LLAMA_BENCH_SETTINGS lists the settings to try, separated by ";" (default below). Each is tried once, then the fastest of each
// measurement runs in alternation with kvist. A setting that crashes is named and is no win for anybody. With --batch above 1
// LLAMA_BENCH is its batched bench (llama-batched-bench), and only decoding is compared, after --depth tokens of each sequence.
//
// Without LLAMA_BENCH llama.cpp comes from the npm package node-llama-cpp (npm install --prefix bench/peer). Its decode speed
// contains a wrapper, whose cost a token is not known well.

import {execFileSync, spawnSync} from "node:child_process";
import os from "node:os";
import path from "node:path";
import {fileURLToPath} from "node:url";
import {parseArgs} from "node:util";

const {values, positionals} = parseArgs({
    allowPositionals: true,
    options: {
        kvist: {type: "string", default: fileURLToPath(new URL("../../build/kvist", import.meta.url))},
        threads: {type: "string", default: String(os.cpus().length)},
        p: {type: "string", short: "p", default: "512"},
        n: {type: "string", short: "n", default: "64"},
        depth: {type: "string", default: "0"},
        batch: {type: "string", default: "1"},
        "kv-type": {type: "string", default: "f16"},
        isa: {type: "string"},
        rounds: {type: "string", default: "5"},
        "one-peer-run": {type: "string"}  // Internal: JSON of one measurement in a process of its own.
    }
});
const [threads, decodeTokens, rounds, depth, batch] = [values.threads, values.n, values.rounds, values.depth, values.batch].map(Number);
const promptTokens = batch > 1 ? 0 : Number(values.p);

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

const own = process.env.LLAMA_BENCH?.split(/\s+/);
const settings = own === undefined ? ["flash attention on", "flash attention off"]
    : (process.env.LLAMA_BENCH_SETTINGS ?? "-fa 1;-fa 0;-fa 1 -mmp 0;-fa 0 -mmp 0").split(";").map((setting) => setting.trim());

/** What a command printed, or null after a crash. */
function outputOf(command, flags, {errorsToo = false} = {}) {
    // Elsewhere, as some peers leave a log behind.
    const result = spawnSync(command, flags, {encoding: "utf8", timeout: 900_000, maxBuffer: 1 << 26, cwd: os.tmpdir()});
    if (result.error?.code === "ENOENT") throw result.error;
    return result.status === 0 ? result.stdout + (errorsToo ? result.stderr : "") : null;
}

const kvFlags = values["kv-type"] === "q8" ? ["-ctk", "q8_0", "-ctv", "q8_0"] : [];
// llama.cpp's bench decodes at a depth with -d; its forks from before that flag with -gp, decoding alone.
let depthFlags = null;
function benchFlags() {
    if (depth === 0) return ["-p", String(promptTokens), "-n", values.n];
    const help = spawnSync(own[0], [...own.slice(1), "--help"], {encoding: "utf8"});
    depthFlags ??= /-gp\b/.test(help.stdout + help.stderr) ? ["-p", "0", "-n", "0", "-gp", `${depth},${values.n}`]
        : ["-p", String(promptTokens), "-n", values.n, "-d", values.depth];
    return depthFlags;
}

/** {prompt, decode, release} in tokens per second, or null after a crash. */
function measurePeer(model, setting) {
    try {
        if (own === undefined) {
            const output = outputOf(process.execPath, [fileURLToPath(import.meta.url), "--threads", values.threads, "-p", values.p,
                "-n", values.n, "--one-peer-run", JSON.stringify({model, flashAttention: setting.endsWith("on")})]);
            return output && JSON.parse(output.trim().split("\n").pop());
        }
        const [command, ...first] = [...own, "-m", model, "-t", values.threads, ...kvFlags, ...setting.split(/\s+/)];
        if (batch > 1) {
            const output = outputOf(command, [...first, "-c", String(batch * (depth + decodeTokens)), "-b", "2048", "-ub", "512",
                "-npp", values.depth, "-ntg", values.n, "-npl", values.batch], {errorsToo: true});
            // The table's columns: PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG (tokens/s of all sequences together), T, S.
            const row = output?.split("\n").map((line) => line.split("|").slice(1, -1).map(Number)).find((cells) => cells[2] === batch);
            return row ? {decode: row[7], release: "batched bench"} : null;
        }
        const output = outputOf(command, [...first, ...benchFlags(), "-r", "2", "-o", "json"]);
        const runs = output && JSON.parse(output.slice(output.indexOf("[")));
        const speed = (run) => run && median(run.samples_ts);
        return runs && {prompt: speed(runs.find((run) => run.n_gen === 0)), decode: speed(runs.find((run) => run.n_gen > 0)),
            release: [runs[0].build_commit, runs[0].build_number].filter(Boolean).join(" ")};
    } catch (error) {
        if (error.code === "ENOENT") throw error;
        return null;
    }
}

function measureKvist(model) {
    const output = execFileSync(values.kvist, [
        "bench", model, "-p", String(depth > 0 ? 0 : promptTokens), "-n", values.n, "--depth", values.depth, "-t", values.threads,
        "--batch", values.batch, "--kv-type", values["kv-type"], "-r", "2", "--json",
        ...(values.isa ? ["--isa", values.isa] : [])
    ], {encoding: "utf8", stdio: ["ignore", "pipe", "ignore"]});
    const lines = output.trim().split("\n").map((line) => JSON.parse(line));
    const of = (kind) => lines.find((line) => line.kind === kind);
    return {prompt: of("prompt")?.tokens_per_s.median, decode: of("decode")?.tokens_per_s.median,
        share: {prompt: of("prompt")?.share, decode: of("decode")?.share}, isa: lines[0].isa, type: lines[0].type};
}

function median(list) {
    const sorted = [...list].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
const range = (list) => `${Math.min(...list).toFixed(2)} to ${Math.max(...list).toFixed(2)}`;

function compare(model) {
    const scouted = settings.map((setting) => ({setting, run: measurePeer(model, setting)}));
    for (const {setting} of scouted.filter(({run}) => run === null)) console.log(`${model}\tthe peer crashed with ${setting}`);
    const working = scouted.filter(({run}) => run !== null);
    const kinds = ["prompt", "decode"].filter((what) => working.some(({run}) => run[what] > 0));
    const best = Object.fromEntries(kinds.map((what) => [what, working.reduce((a, b) => b.run[what] > a.run[what] ? b : a)]));
    const chosen = [...new Set(Object.values(best))];
    const ours = [], theirs = new Map(chosen.map((one) => [one, []]));
    for (let round = 0; round < rounds; round++) {
        ours.push(measureKvist(model));
        for (const one of chosen) theirs.get(one).push(measurePeer(model, one.setting));
    }
    for (const what of kinds) {
        const one = best[what], runs = theirs.get(one);
        const label = (what === "prompt" ? `pp${promptTokens}` : `tg${decodeTokens}`)
            + (batch > 1 ? `@b${batch}` : "") + (depth > 0 ? `@d${depth}` : "") + (kvFlags.length > 0 ? " q8" : "");
        if (runs.includes(null)) {
            console.log(`${model}\t${label}\tthe peer crashed with ${one.setting}: no ratio`);
            continue;
        }
        const ratios = ours.map((run, i) => run[what] / runs[i][what]);
        console.log([
            model, label, `kvist ${median(ours.map((r) => r[what])).toFixed(1)}`,
            `peer ${median(runs.map((r) => r[what])).toFixed(1)}`, `ratio ${median(ratios).toFixed(2)} (${range(ratios)})`,
            `${Math.round(100 * median(ours.map((r) => r.share[what])))} % of the limit`,
            `${ours[0].type}, ${ours[0].isa}, ${threads} threads, peer ${one.run.release} with ${one.setting}`
        ].join("\t"));
    }
}

if (values["one-peer-run"]) await peerRun(JSON.parse(values["one-peer-run"]));
else if (positionals.length === 0) console.error("name at least one model file"), process.exit(2);
else positionals.map((file) => path.resolve(file)).forEach(compare);
