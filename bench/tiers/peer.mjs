// llama.cpp's server, for the benches beside this file.

import {spawn} from "node:child_process";
import {events} from "../client.mjs";

/**
 * Starts it with one attention setting that suits processors, and waits until it answers.
 * @param contexts  slots @param tokens  of each @param flags  more of its own
 */
export async function startPeer(binary, model, {contexts, tokens, threads, port, flags}) {
    const url = `http://127.0.0.1:${port}`;
    const server = spawn(binary, ["-m", model, "-c", contexts * tokens, "-t", threads, "-tb", threads, "-np", contexts, "-fa", "on",
        "--host", "127.0.0.1", "--port", port, "--no-webui", ...flags].map(String), {stdio: ["ignore", "ignore", "pipe"]});
    process.on("exit", () => server.kill());
    let log = "";
    server.stderr.on("data", (bytes) => { log = (log + bytes).slice(-2000); });
    while (!(await fetch(`${url}/health`).catch(() => null))?.ok) {
        if (server.exitCode !== null) throw new Error(`the server did not start: ${log}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return {server, url};
}

/** Streams a completion, as `stream` of server.mjs does. @returns when each token came, and what was cached and computed. */
export async function streamPeer(url, prompt, maxTokens) {
    const begin = performance.now(), times = [];
    const body = {prompt, n_predict: maxTokens, temperature: 0, ignore_eos: true, stream: true, cache_prompt: true, return_tokens: true};
    const response = await fetch(`${url}/completion`, {method: "POST", headers: {"content-type": "application/json", connection: "close"}, body: JSON.stringify(body)});
    if (!response.ok) throw new Error(await response.text());
    let timings = {};
    for await (const chunk of events(response)) {
        timings = chunk.timings ?? timings;
        if (!chunk.stop) times.push(performance.now() - begin);
    }
    return {times, computed: timings.prompt_n, cached: prompt.length - timings.prompt_n};
}
