// What the benches that talk to a running server share.

/** Pseudo-random token ids from 16 to vocab - 1: equal seeds, equal texts. */
export function pseudoText(count, seed, vocab) {
    const draw = random(seed);
    return Array.from({length: count}, () => 16 + draw() % (vocab - 16));
}

/** Integers of 32 bits, the same for the same seed. */
export function random(seed) {
    let state = seed;
    return () => state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
}

/** Posts JSON. @returns the reply and the time until it had come. Throws what the server says. */
export async function post(url, body) {
    const start = performance.now();
    const response = await fetch(url, {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body)});
    const reply = await response.json();
    if (!response.ok) throw new Error(reply.error?.message ?? JSON.stringify(reply));
    return {reply, ms: performance.now() - start};
}

/** The JSON objects of a streamed answer, as they come. */
export async function* events(response) {
    let rest = "";
    for await (const bytes of response.body) {
        const lines = (rest + Buffer.from(bytes).toString()).split("\n");
        rest = lines.pop();
        for (const line of lines) {
            if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
        }
    }
}
