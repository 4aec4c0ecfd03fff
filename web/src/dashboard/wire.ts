// What the server says of itself, as it comes over the wire and as the page uses it. Reading never fails: a server of
// another version may leave fields out, and then there is nothing to show for them.

import { isRecord } from "../api";

type Json = Record<string, unknown>;

const count = (value: unknown): number => (typeof value === "number" && value >= 0 ? value : 0);
const maybe = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);
const record = (value: unknown): Json => (isRecord(value) ? value : {});
const records = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isRecord) : []);

/** Milliseconds; null = nothing was measured. */
export interface Percentiles {
  count: number;
  p50: number | null;
  p90: number | null;
  p99: number | null;
}

export interface Blocks {
  total: number;
  free: number;
  cached: number; // Those pinned included.
  pinned: number;
  referenced: number;
}

export interface Tier {
  name: string;
  state: string | null; // Of those below hot memory, as is what follows.
  reason: string | null;
  bytes: number;
  bytesMax: number | null;
  blocks: Blocks;
}

export interface LiveRequest {
  number: number; // The engine's.
  id: string | null; // The client's.
  state: string; // running, waiting, preempted
  ageMs: number;
  promptTokens: number;
  outputTokens: number;
}

export interface Totals {
  steps: number;
  stepMs: number;
  promptTokens: number;
  cachedTokens: number;
  outputTokens: number;
  preemptions: number;
}

export interface ServerState {
  model: string;
  nowMs: number; // Since the server's start.
  running: number;
  waiting: number;
  preempted: number;
  requests: LiveRequest[];
  tiers: Tier[];
  totals: Totals;
  latencyWindowS: number;
  ttft: Percentiles;
  tpot: Percentiles;
  e2e: Percentiles;
  stepWindowS: number;
  step: Percentiles;
  keepsUsage: boolean; // There is something at kvist/usage.
  predictionError: number | null; // Of step times: mean of |predicted - measured| / measured.
}

const percentiles = (value: unknown): Percentiles => {
  const from = record(value);
  return { count: count(from["count"]), p50: maybe(from["p50"]), p90: maybe(from["p90"]), p99: maybe(from["p99"]) };
};

const tiersOf = (value: unknown): Tier[] =>
  records(value).map((tier) => {
    const blocks = record(tier["blocks"]);
    return {
      name: text(tier["name"]) ?? "memory",
      state: text(tier["state"]),
      reason: text(tier["reason"]),
      bytes: count(tier["bytes"]),
      bytesMax: maybe(tier["bytes_max"]),
      blocks: {
        total: count(blocks["total"]),
        free: count(blocks["free"]),
        cached: count(blocks["cached"]),
        pinned: count(blocks["pinned"]),
        referenced: count(blocks["referenced"]),
      },
    };
  });

export function parseState(json: unknown): ServerState {
  const body = record(json);
  const counts = record(body["counts"]);
  const totals = record(body["since_start"]);
  const latency = record(body["latency"]);
  const steps = record(body["steps"]);
  return {
    model: text(body["model"]) ?? "",
    nowMs: count(body["now_ms"]),
    running: count(counts["running"]),
    waiting: count(counts["waiting"]),
    preempted: count(counts["preempted"]),
    requests: records(body["requests"]).map((request) => ({
      number: count(request["number"]),
      id: text(request["id"]),
      state: text(request["state"]) ?? "running",
      ageMs: count(request["age_ms"]),
      promptTokens: count(request["prompt_tokens"]),
      outputTokens: count(request["output_tokens"]),
    })),
    tiers: tiersOf(body["tiers"]),
    totals: {
      steps: count(totals["steps"]),
      stepMs: count(totals["step_ms"]),
      promptTokens: count(totals["prompt_tokens"]),
      cachedTokens: count(totals["cached_tokens"]),
      outputTokens: count(totals["output_tokens"]),
      preemptions: count(totals["preemptions"]),
    },
    latencyWindowS: count(latency["window_s"]),
    ttft: percentiles(latency["ttft_ms"]),
    tpot: percentiles(latency["tpot_ms"]),
    e2e: percentiles(latency["e2e_ms"]),
    stepWindowS: count(steps["window_s"]),
    keepsUsage: body["keeps_usage"] === true,
    step: percentiles(steps["ms"]),
    predictionError: maybe(steps["prediction_error"]),
  };
}

export interface StepPart {
  number: number;
  prefill: number; // Tokens.
  decode: number;
  waitedMs: number; // Before its first step.
}

export interface Step {
  id: number;
  startMs: number;
  ms: number;
  parts: StepPart[];
  preempted: number[];
}

export interface StepsAnswer {
  nowMs: number;
  names: Map<number, string>;
  steps: Step[];
}

export function parseSteps(json: unknown): StepsAnswer {
  const body = record(json);
  const names = new Map<number, string>();
  for (const request of records(body["requests"])) {
    const id = text(request["id"]);
    if (id !== null) names.set(count(request["number"]), id);
  }
  return {
    nowMs: count(body["now_ms"]),
    names,
    steps: records(body["data"]).map((step) => ({
      id: count(step["id"]),
      startMs: count(step["start_ms"]),
      ms: count(step["ms"]),
      parts: records(step["requests"]).map((part) => ({
        number: count(part["number"]),
        prefill: count(part["prefill"]),
        decode: count(part["decode"]),
        waitedMs: count(part["waited_ms"]),
      })),
      preempted: Array.isArray(step["preempted"]) ? step["preempted"].map(count) : [],
    })),
  };
}

export interface MemoryRequest {
  name: string;
  tenant: string;
  blocks: number; // Written by it, not shared.
}

export interface TreeNode {
  id: number;
  parent: number | null;
  namespace: string;
  textBegin: number;
  tokens: number;
  blocks: number;
  holes: number;
  operations: number;
  sequences: number; // That stand at its end.
  idleS: number | null; // Since somebody used it last; null = not known.
  retention: string | null; // Class, where somebody wished one.
}

export interface Memory {
  blockTokens: number;
  tiers: Tier[];
  requests: MemoryRequest[];
  nodes: TreeNode[];
  nodesTotal: number;
}

export function parseMemory(json: unknown): Memory {
  const body = record(json);
  const nodes = records(body["nodes"]).map((node) => ({
    id: count(node["id"]),
    parent: maybe(node["parent"]),
    namespace: String(node["namespace"] ?? ""),
    textBegin: count(node["text_begin"]),
    tokens: count(node["tokens"]),
    blocks: count(node["blocks"]),
    holes: count(node["holes"]),
    operations: count(node["operations"]),
    sequences: count(node["sequences"]),
    idleS: maybe(node["idle_s"]),
    retention: text(record(node["retention"])["class"]),
  }));
  return {
    blockTokens: count(body["block_tokens"]),
    tiers: tiersOf(body["tiers"]),
    requests: records(body["requests"]).map((request) => ({
      name: text(request["request"]) ?? `request ${count(request["id"])}`,
      tenant: text(request["tenant"]) ?? "no tenant",
      blocks: count(request["own_blocks"]),
    })),
    nodes,
    nodesTotal: Math.max(count(body["nodes_total"]), nodes.length),
  };
}

/** What a tenant used. Money is there where the tenant has prices. */
export interface Usage {
  tenant: string;
  requests: number;
  promptTokens: number;
  cachedTokens: number;
  generatedTokens: number;
  stepSeconds: number;
  coldByteSeconds: number; // Held of cold memory,
  driveByteSeconds: number; // and of the drive.
  currency: string | null;
  cost: number | null;
  revenue: number | null;
  margin: number | null;
}

export function parseUsage(json: unknown): Usage[] {
  return records(record(json)["data"]).map((row) => ({
    tenant: text(row["tenant"]) ?? "no tenant",
    requests: count(row["requests"]),
    promptTokens: count(row["prompt_tokens"]),
    cachedTokens: count(row["cached_tokens"]),
    generatedTokens: count(row["generated_tokens"]),
    stepSeconds: count(row["step_seconds"]),
    coldByteSeconds: count(record(row["kv_byte_seconds"])["cold_memory"]),
    driveByteSeconds: count(record(row["kv_byte_seconds"])["drive"]),
    currency: text(row["currency"]),
    cost: maybe(row["cost"]),
    revenue: maybe(row["revenue"]),
    margin: maybe(row["margin"]),
  }));
}

export interface ReusedPart {
  tokens: number;
  copied: boolean;
  /** Where it is from: "hot" when the request `from` had computed it, else the tier below that it came back from. */
  tier: string;
  inMemory: boolean; // When the request came; else it was read from the tier for it.
  from: string | null;
  msBefore: number | null;
}

export interface Choice {
  tokens: [string, number][];
  reused: ReusedPart[];
  leader: { id: string | null; tokens: number; waitedMs: number } | null;
  preemptions: number;
  steps: { count: number; timeMs: number; requestsMean: number; tokensMean: number };
}

/** What `kvist explain` says. */
export interface Explained {
  id: string;
  kind: string;
  finish: string;
  error: number | null;
  totalMs: number | null;
  outputTokens: number;
  phases: [string, number][]; // Those that took any time, in order.
  choices: Choice[];
}

export function parseExplained(json: unknown): Explained {
  const body = record(json);
  const numbers = (value: unknown): [string, number][] =>
    Object.entries(record(value)).flatMap(([name, entry]) =>
      typeof entry === "number" && entry > 0 ? [[name, entry] as [string, number]] : [],
    );
  return {
    id: text(body["id"]) ?? "",
    kind: text(body["kind"]) ?? "request",
    finish: text(body["finish_reason"]) ?? "unknown",
    error: maybe(body["error_status"]),
    totalMs: maybe(body["total_ms"]),
    outputTokens: count(body["output_tokens"]),
    phases: numbers(body["phases_ms"]),
    choices: records(body["choices"]).map((choice) => {
      const steps = record(choice["steps"]);
      const leader = record(choice["leader"]);
      return {
        tokens: numbers(choice["tokens"]),
        reused: records(choice["reused_from"]).map((part) => ({
          tokens: count(part["tokens"]),
          copied: part["copied"] === true,
          tier: text(part["from"]) ?? "hot",
          inMemory: part["in_memory"] === true,
          from: text(part["computed_by"]),
          msBefore: maybe(part["ms_before"]),
        })),
        leader:
          count(leader["tokens"]) === 0
            ? null
            : { id: text(leader["id"]), tokens: count(leader["tokens"]), waitedMs: count(leader["waited_ms"]) },
        preemptions: count(choice["preemptions"]),
        steps: {
          count: count(steps["count"]),
          timeMs: count(steps["time_ms"]),
          requestsMean: count(steps["requests_mean"]),
          tokensMean: count(steps["tokens_mean"]),
        },
      };
    }),
  };
}
