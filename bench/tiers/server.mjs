// A server on a store, for the benches beside this file.

import {spawn} from "node:child_process";
import {once} from "node:events";
import {createInterface} from "node:readline";
import {events} from "../client.mjs";

/** Starts `kvist serve` and waits until it is ready. */
export async function start(kvist, model, flags) {
    const server = spawn(kvist, ["serve", model, "--port", "0", "--json", "--log-level", "warn", ...flags.map(String)], {stdio: ["ignore", "pipe", "inherit"]});
    for await (const line of createInterface({input: server.stdout})) return {server, url: JSON.parse(line).url};
    throw new Error("the server did not start");
}

export async function stop({server}) {
    server.kill("SIGTERM");
    if (server.exitCode === null) await once(server, "exit");
}

/** Streams a completion. @returns its id, when each token came, in ms from the request on, their text, and what was cached. */
export async function stream(url, prompt, maxTokens, onToken = () => {}) {
    const begin = performance.now(), times = [];
    const body = {prompt, max_tokens: maxTokens, temperature: 0, ignore_eos: true, stream: true, logprobs: 0, stream_options: {include_usage: true}};
    const response = await fetch(`${url}/v1/completions`, {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body)});
    if (!response.ok) throw new Error(await response.text());
    let id = "", cached = 0, text = "";
    for await (const chunk of events(response)) {
        id = chunk.id;
        text += chunk.choices?.[0]?.text ?? "";
        cached = chunk.usage?.prompt_tokens_details?.cached_tokens ?? cached;
        const count = chunk.choices?.[0]?.logprobs?.tokens?.length ?? 0;
        for (let i = 0; i < count; ++i) {
            times.push(performance.now() - begin);
            onToken(times.length);
        }
    }
    return {id, times, text, cached};
}

/** @param tier  of the metrics that have one */
export async function metric(url, name, tier) {
    const text = await (await fetch(`${url}/metrics`)).text();
    const labels = tier === undefined ? "\\S*" : `\\{[^}]*tier="${tier}"[^}]*\\}`;
    return Number(new RegExp(`^${name}${labels} (\\S+)`, "m").exec(text)?.[1] ?? 0);
}

/** Flags of the tiers below memory by the name of a way. @param room  of cold memory and of the drive */
export function tierFlags(way, folder, room) {
    const cold = ["--kv-cold-memory", room.cold], drive = ["--kv-disk", folder, "--kv-disk-size", room.drive];
    const ways = {
        memory: [],
        cold,
        int8: [...cold, "--kv-cold-codec", "int8"],
        drive,
        "drive-all": [...drive, "--kv-admission", "all"],
        both: [...cold, ...drive],
        "both-all": [...cold, ...drive, "--kv-admission", "all"],
        "both-all-unpaced": [...cold, ...drive, "--kv-admission", "all", "--no-kv-pacing"]
    };
    if (!(way in ways)) throw new Error(`ways are ${Object.keys(ways).join(", ")}, not ${way}`);
    return ways[way];
}

export const gaps = (times) => times.slice(1).map((time, i) => time - times[i]);
export const percentile = (list, share) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(share * list.length))];
export const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
