// How evenly tokens come while long prompts arrive, on a real server, for each policy:
//
//   node bench/sched/stall.mjs KVIST MODEL [--policies fcfs,chunked,deadline] [--streams 4] [--prompts 6] [--every 4] [--factor 1.5] [--alone MS]
//
// Streams of tokens run alone first, which gives the time between tokens without prompts; then prompts of 4,000 tokens
// arrive at equal distances (seconds), or all at once (--every 0), while the streams go on. `deadline` policies get
// --factor times the median of the first part (or of --alone) as --tpot-target-ms. One JSON object per policy.
import {spawn} from "node:child_process";

import {pseudoText} from "../client.mjs";

const [kvist, model, ...rest] = process.argv.slice(2);
const option = (name, usual) => {
    const at = rest.indexOf(`--${name}`);
    return at < 0 ? usual : rest[at + 1];
};
const policies = option("policies", "fcfs,chunked,deadline,fair-deadline").split(",");
const streams = Number(option("streams", 4));
const prompts = Number(option("prompts", 6));
const every = Number(option("every", 4));
const factor = Number(option("factor", 1.5));
const promptTokens = 4000;

const sleep = (s) => new Promise((done) => setTimeout(done, s * 1000));
const quantile = (values, share) => {
    const sorted = [...values].sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
};

function serve(...flags) {
    const child = spawn(kvist, ["serve", model, "--port", "0", "--json", "--log-level", "error", "-c", "8192", ...flags]);
    return new Promise((ready, failed) => {
        let text = "";
        child.stderr.on("data", (data) => process.stderr.write(data));
        child.on("exit", (code) => failed(new Error(`the server ended with ${code}`)));
        child.stdout.on("data", (data) => {
            text += data;
            if (text.includes("\n")) ready({child, url: JSON.parse(text).url});
        });
    });
}

// Tokens of a streamed completion: when each came, in ms.
async function* tokens(url, body, signal) {
    const reply = await fetch(`${url}/v1/completions`, {
        method: "POST",
        headers: {"content-type": "application/json"},
        body: JSON.stringify({stream: true, temperature: 0, ignore_eos: true, ...body}),
        signal,
    });
    if (!reply.ok) throw new Error(await reply.text());
    const decoder = new TextDecoder();
    let text = "";
    for await (const chunk of reply.body) {
        text += decoder.decode(chunk, {stream: true});
        for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
            if (text.startsWith("data: {")) yield performance.now();
        }
    }
}

const promptOf = (seed, count) => pseudoText(count, seed, 30000);

async function stream(url, seed, gaps, signal) {
    try {
        let last;
        for await (const at of tokens(url, {prompt: promptOf(seed, 32), max_tokens: 6000}, signal)) {
            if (last !== undefined) gaps.push({at, ms: at - last});
            last = at;
        }
    } catch (error) {
        if (!signal.aborted) throw error;
    }
}

async function measure(policy, target) {
    const flags = ["--policy", policy];
    if (target) flags.push("--tpot-target-ms", String(target));
    const {child, url} = await serve(...flags);
    const stop = new AbortController();
    const gaps = [];
    const running = Array.from({length: streams}, (_, i) => stream(url, i + 1, gaps, stop.signal));
    await sleep(2);
    const aloneFrom = performance.now();
    await sleep(6);
    const begin = performance.now();
    const first = Array.from({length: prompts}, async (_, i) => {
        await sleep(i * every);
        const sent = performance.now();
        for await (const at of tokens(url, {prompt: promptOf(100 + i, promptTokens), max_tokens: 1})) return at - sent;
    });
    const firstTokens = await Promise.all(first);
    const end = performance.now();
    const metrics = await (await fetch(`${url}/metrics`)).text();
    stop.abort();
    await Promise.all(running);
    child.removeAllListeners("exit");
    child.kill("SIGTERM");
    await new Promise((done) => child.on("exit", done));
    const alone = gaps.filter((gap) => gap.at >= aloneFrom && gap.at < begin).map((gap) => gap.ms);
    const busy = gaps.filter((gap) => gap.at >= begin && gap.at < end).map((gap) => gap.ms);
    return {
        policy,
        tpot_target_ms: target,
        alone_itl_ms: {p50: quantile(alone, 0.5), p99: quantile(alone, 0.99)},
        itl_ms: {p50: quantile(busy, 0.5), p99: quantile(busy, 0.99), max: Math.max(...busy)},
        stream_tokens: busy.length,
        ttft_ms: {p50: quantile(firstTokens, 0.5), max: Math.max(...firstTokens)},
        prompt_tokens_per_s: (prompts * promptTokens) / ((end - begin) / 1000),
        step_time_error_ratio: Number(metrics.match(/^kvist_step_time_error_ratio\S* (\S+)/m)?.[1]),
        step_prices_ns: [...metrics.matchAll(/^kvist_step_price_ns\S* (\S+)/gm)].map((match) => Number(match[1])),
    };
}

let alone = Number(option("alone", 0)) || undefined;
for (const policy of policies) {
    const target = policy.includes("deadline") && alone ? alone * factor : 0;
    const figures = await measure(policy, target);
    alone ??= figures.alone_itl_ms.p50;
    console.log(JSON.stringify(figures));
}
