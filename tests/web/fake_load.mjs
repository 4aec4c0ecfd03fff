// What a server under load says of itself, made up: requests that wait, read, write and are put back, step by step, on
// a clock that tests move. The same calls give the same answers.

const kStepMs = 25;
const kPrefillTokens = 256; // A step.
const kBlockTokens = 16;

export class FakeLoad {
  nowMs = 20_000;
  requests = []; // {number, tenant, prompt, cached, left, computed, output, arrivedMs, state, begun}
  steps = [];
  nodes = [];
  blocksTotal = 2048;
  runningMax = 6;
  tiersBelow = []; // Hot memory.
  usage = null; // Rows of /kvist/usage; null = this server keeps none.
  #numbers = 1;
  #nextStep = 0;
  #totals = { steps: 0, step_ms: 0, prompt_tokens: 0, cached_tokens: 0, output_tokens: 0, preemptions: 0 };
  #ended = [];

  arrive({ prompt = 900, cached = 0, output = 60, tenant = "" } = {}) {
    const number = this.#numbers++;
    this.requests.push({
      number,
      id: `chatcmpl-${(number * 2654435761).toString(16).padStart(24, "0")}`,
      tenant,
      prompt,
      cached,
      computed: cached,
      output: 0,
      left: output,
      arrivedMs: this.nowMs,
      state: "waiting",
      begun: false,
    });
    return this.requests.at(-1);
  }

  /** Puts the request that began last back, and everything that it had computed. */
  preempt() {
    const request = this.#running().at(-1);
    request.state = "preempted";
    request.computed = 0;
    this.#totals.preemptions++;
    this.preempted = [request.number];
    return request;
  }

  advance(ms) {
    const end = this.nowMs + ms;
    while (this.nowMs + kStepMs <= end) this.#step();
    this.nowMs = end;
  }

  #running() {
    return this.requests.filter((request) => request.state === "running");
  }

  #step() {
    for (const request of this.requests) {
      if (this.#running().length >= this.runningMax) break;
      if (request.state === "running" || (request.state === "preempted" && this.preempted)) continue;
      request.state = "running";
    }
    const parts = [];
    let budget = kPrefillTokens;
    for (const request of this.#running()) {
      const known = request.prompt + request.output;
      const reads = known - request.computed > 1;
      const tokens = reads ? Math.min(known - request.computed, budget) : 1;
      if (tokens === 0) continue;
      if (reads) budget -= tokens;
      const part = { number: request.number, [reads ? "prefill" : "decode"]: tokens };
      if (!request.begun) {
        request.begun = true;
        part.waited_ms = this.nowMs - request.arrivedMs;
        this.#totals.prompt_tokens += request.prompt;
        this.#totals.cached_tokens += request.cached;
      }
      parts.push(part);
      request.computed += tokens;
      if (request.computed < known) continue;
      request.output++;
      this.#totals.output_tokens++;
      if (--request.left <= 0) request.state = "ended";
    }
    if (parts.length > 0) {
      const step = { id: this.#nextStep++, start_ms: this.nowMs, ms: kStepMs - 2, requests: parts };
      if (this.preempted) step.preempted = this.preempted;
      this.preempted = null;
      this.steps.push(step);
      this.#totals.steps++;
      this.#totals.step_ms += step.ms;
    }
    this.#ended.push(...this.requests.filter((request) => request.state === "ended"));
    this.requests = this.requests.filter((request) => request.state !== "ended");
    this.nowMs += kStepMs;
  }

  /** A server that was started again. */
  restart() {
    const { nodes, blocksTotal } = this;
    Object.assign(this, new FakeLoad(), { nodes, blocksTotal, nowMs: 500 });
    this.#numbers = 1;
    this.#nextStep = 0;
    for (const name of Object.keys(this.#totals)) this.#totals[name] = 0;
    this.#ended = [];
  }

  /** Texts that branch: every `branch` nodes share a beginning. */
  grow(count, branch = 8) {
    for (let i = 0; i < count; i++) {
      const parent = i === 0 || i % 97 === 0 ? null : Math.floor((i - 1) / branch) + 1;
      const begin = parent === null ? 0 : this.nodes[parent - 1].text_begin + this.nodes[parent - 1].tokens;
      this.nodes.push({
        id: i + 1,
        parent,
        namespace: 0,
        text_begin: begin,
        tokens: 16 * (1 + (i % 5)),
        blocks: 1 + (i % 5) - (i % 23 === 22 ? 1 : 0),
        holes: i % 23 === 22 ? 1 : 0,
        operations: i % 31 === 30 ? 1 : 0,
        sequences: i % 11 === 3 ? 1 : 0,
        idle_s: i % 11 === 3 ? null : (i * 7) % 400,
        retention: i % 13 === 1 ? { class: ["pinned", "high", "low"][i % 3] } : null,
      });
    }
  }

  answer({ pathname, searchParams }) {
    switch (pathname) {
      case "/kvist/state":
        return this.#state();
      case "/kvist/steps":
        return this.#steps(searchParams.get("since"));
      case "/kvist/memory":
        return this.#memory();
      case "/kvist/usage":
        return this.usage === null ? null : { object: "kvist.usage", data: this.usage };
      default:
        return this.#explain(pathname.replace("/kvist/requests/", ""));
    }
  }

  #own(request) {
    return request.begun && request.state === "running"
      ? Math.ceil((request.computed - request.cached) / kBlockTokens)
      : 0;
  }

  #tiers() {
    const own = this.requests.reduce((sum, request) => sum + Math.max(this.#own(request), 0), 0);
    const shared = this.requests.some((request) => request.state === "running" && request.cached > 0) ? 40 : 0;
    const cached = Math.min(
      this.nodes.reduce((sum, node) => sum + node.blocks, 0),
      Math.floor(this.blocksTotal * 0.6),
    );
    const pinned = this.nodes.some((node) => node.retention?.class === "pinned") ? Math.min(30, cached) : 0;
    const blocks = { total: this.blocksTotal, cached, pinned, referenced: own + shared };
    blocks.free = blocks.total - blocks.cached - blocks.referenced;
    return [{ name: "hot", blocks }, ...this.tiersBelow];
  }

  #state() {
    const of = (state) => this.requests.filter((request) => request.state === state).length;
    const some = this.#ended.length > 0;
    const times = (p50, p90, p99) =>
      some ? { count: this.#ended.length, p50, p90, p99 } : { count: 0, p50: null, p90: null, p99: null };
    return {
      object: "kvist.state",
      model: "smollm2-135m-instruct-q8_0",
      now_ms: this.nowMs,
      counts: { running: of("running"), waiting: of("waiting"), preempted: of("preempted") },
      requests: this.requests.map((request) => ({
        number: request.number,
        id: request.id,
        tenant: request.tenant,
        state: request.state,
        age_ms: this.nowMs - request.arrivedMs,
        prompt_tokens: request.prompt,
        output_tokens: request.output,
      })),
      keeps_usage: this.usage !== null,
      tiers: this.#tiers(),
      since_start: { ...this.#totals },
      latency: {
        window_s: 300,
        ttft_ms: times(184.2, 611.9, 1240.4),
        tpot_ms: times(24.1, 25.9, 51.3),
        e2e_ms: times(2310, 5120.5, 9400),
      },
      steps: { window_s: 60, ms: { count: this.steps.length, p50: 23, p90: 23.4, p99: 51 } },
    };
  }

  #steps(since) {
    const data = this.steps.filter((step) => since === null || step.id > Number(since)).slice(-512);
    const numbers = new Set(data.flatMap((step) => step.requests.map((part) => part.number)));
    const named = [...this.requests, ...this.#ended].filter((request) => numbers.has(request.number));
    return {
      object: "kvist.steps",
      now_ms: this.nowMs,
      requests: named.map(({ number, id }) => ({ number, id })),
      data,
    };
  }

  #memory() {
    return {
      object: "kvist.memory",
      block_tokens: kBlockTokens,
      tiers: this.#tiers(),
      requests: this.requests.map((request) => ({
        id: request.number,
        request: request.id,
        tenant: request.tenant,
        own_blocks: Math.max(this.#own(request), 0),
      })),
      nodes_total: this.nodes.length,
      nodes: this.nodes,
    };
  }

  #explain(id) {
    const request = this.#ended.find((one) => one.id === id);
    if (request === undefined) return null;
    return {
      id,
      kind: "chat",
      finish_reason: "stop",
      prompt_tokens: request.prompt,
      output_tokens: request.output,
      total_ms: 2310.4,
      phases_ms: { prepare: 1.2, queue: 420.5, leader: 0, prefill: 610.2, decode: 1240.1, preempted: 36, answer: 2.4 },
      choices: [
        {
          tokens: {
            prompt: request.prompt,
            reused: 512,
            copied: 7,
            computed: 440,
            recomputed: 0,
            dropped: 0,
            output: request.output,
          },
          reused_from: [
            {
              tokens: 512,
              copied: false,
              node: 5,
              from: "hot",
              computed_by: "chatcmpl-000000000000000000c0ffee",
              ms_before: 12_300,
            },
            { tokens: 64, copied: false, node: 6, from: "drive", in_memory: true, computed_by: null, ms_before: 40_000 },
            { tokens: 32, copied: false, node: 7, from: "cold_memory", in_memory: false, computed_by: null, ms_before: 3 },
            { tokens: 7, copied: true, node: 0, from: "hot", computed_by: null, ms_before: null },
          ],
          leader: { id: "chatcmpl-000000000000000000abcdef", tokens: 512, waited_ms: 33.5 },
          preemptions: 1,
          steps: { count: 63, time_ms: 1449.5, requests_mean: 3.1, tokens_mean: 88.4 },
        },
      ],
    };
  }
}

/** Traffic of all kinds, so that everything there is to show is there. */
export function busyLoad(nodes = 60) {
  const load = new FakeLoad();
  load.grow(nodes);
  for (let i = 0; i < 26; i++) {
    load.arrive({
      prompt: 300 + ((i * 397) % 1900),
      cached: i % 3 === 0 ? 256 : 0,
      output: 40 + ((i * 53) % 180),
      tenant: ["acme", "initech", "a-tenant-with-a-rather-long-name"][i % 3],
    });
    load.advance(700);
    if (i === 12 || i === 19) {
      load.preempt();
      load.runningMax = 1; // It has to wait.
      load.advance(1200);
      load.runningMax = 6;
    }
  }
  for (let i = 0; i < 8; i++) load.arrive({ prompt: 1400, output: 200, tenant: ["acme", "initech"][i % 2] });
  load.advance(600);
  return load;
}
