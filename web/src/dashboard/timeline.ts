// Requests over time, from the steps that computed them: when each waited, read its prompt, wrote its answer, was put
// back. Plain data; drawing is in timeline_view.ts. Instants are milliseconds since the server's start.

import { duration, grouped, plural } from "../format";
import type { LiveRequest, StepsAnswer } from "./wire";

export const kKeptMs = 130_000;
const kRequestsMax = 400;

export type SpanKind = "waiting" | "prefill" | "decode" | "preempted";

/** Something that a request did or suffered; for prefill and decode one step. */
export interface Span {
  kind: SpanKind;
  beginMs: number;
  endMs: number;
  tokens: number;
}

export interface RequestRow {
  number: number;
  id: string | null;
  state: string; // running, waiting, preempted, ended
  arrivedMs: number;
  spans: Span[]; // In order of their beginnings; waiting and preempted ones that go on end at the last news.
}

export class Timeline {
  private readonly byNumber = new Map<number, RequestRow>();
  private open = new Map<number, Span>(); // Waits that have not ended.
  nowMs = 0;
  lastStep: number | null = null;

  clear(): void {
    this.byNumber.clear();
    this.open.clear();
    this.nowMs = 0;
    this.lastStep = null;
  }

  addSteps(answer: StepsAnswer): void {
    this.nowMs = Math.max(this.nowMs, answer.nowMs);
    for (const step of answer.steps) {
      if (this.lastStep !== null && step.id <= this.lastStep) continue;
      this.lastStep = step.id;
      for (const number of step.preempted) {
        const row = this.byNumber.get(number);
        if (row !== undefined && !this.open.has(number)) this.begin(row, "preempted", step.startMs);
      }
      for (const part of step.parts) {
        const row = this.rowOf(part.number, step.startMs - part.waitedMs);
        this.end(row, step.startMs, part.waitedMs);
        const kind = part.prefill > 0 ? "prefill" : "decode";
        const tokens = part.prefill > 0 ? part.prefill : part.decode;
        row.spans.push({ kind, beginMs: step.startMs, endMs: step.startMs + step.ms, tokens });
      }
    }
    for (const [number, id] of answer.names) {
      const row = this.byNumber.get(number);
      if (row !== undefined) row.id = id;
    }
  }

  /** Who was there at `nowMs`; to be told after steps that may be a little newer. */
  addLive(requests: LiveRequest[], nowMs: number): void {
    this.nowMs = Math.max(this.nowMs, nowMs);
    for (const row of this.byNumber.values()) {
      row.state = (row.spans.at(-1)?.endMs ?? 0) > nowMs ? "running" : "ended"; // It came only after that moment.
    }
    for (const request of requests) {
      const row = this.rowOf(request.number, nowMs - request.ageMs);
      row.state = request.state;
      row.id ??= request.id;
      if (request.state !== "running" && !this.open.has(request.number)) {
        const last = row.spans.at(-1);
        this.begin(row, last === undefined ? "waiting" : "preempted", last?.endMs ?? row.arrivedMs);
      }
    }
    for (const [number, span] of this.open) {
      const row = this.byNumber.get(number);
      if (row === undefined || row.state === "ended") this.open.delete(number);
      else span.endMs = this.nowMs;
    }
    this.forget();
  }

  /** What can be seen of the last `windowMs`, the latest arrival first. */
  rows(windowMs: number): RequestRow[] {
    const from = this.nowMs - windowMs;
    return [...this.byNumber.values()]
      .filter((row) => row.state !== "ended" || (row.spans.at(-1)?.endMs ?? 0) > from)
      .sort((a, b) => b.arrivedMs - a.arrivedMs || b.number - a.number);
  }

  private rowOf(number: number, arrivedMs: number): RequestRow {
    let row = this.byNumber.get(number);
    if (row === undefined) {
      row = { number, id: null, state: "ended", arrivedMs, spans: [] };
      this.byNumber.set(number, row);
    }
    return row;
  }

  private begin(row: RequestRow, kind: SpanKind, beginMs: number): void {
    const span = { kind, beginMs, endMs: Math.max(beginMs, this.nowMs), tokens: 0 };
    row.spans.push(span);
    this.open.set(row.number, span);
  }

  /** A step of `row` begins, so that no wait of it goes on. */
  private end(row: RequestRow, atMs: number, waitedMs: number): void {
    const open = this.open.get(row.number);
    if (open !== undefined) {
      this.open.delete(row.number);
      open.endMs = Math.max(open.beginMs, atMs);
    } else if (waitedMs > 0) {
      row.spans.push({ kind: "waiting", beginMs: atMs - waitedMs, endMs: atMs, tokens: 0 });
    }
  }

  private forget(): void {
    const from = this.nowMs - kKeptMs;
    for (const row of this.byNumber.values()) {
      const old = row.spans.findIndex((span) => span.endMs >= from);
      if (old > 0) row.spans.splice(0, old);
      if (row.state === "ended" && (old < 0 || row.spans.length === 0)) this.byNumber.delete(row.number);
    }
    const ended = [...this.byNumber.values()].filter((row) => row.state === "ended");
    for (const row of ended.slice(0, Math.max(0, this.byNumber.size - kRequestsMax))) this.byNumber.delete(row.number);
  }
}

/** What is drawn in one piece. */
export interface Bar {
  beginMs: number;
  endMs: number;
  steps: number;
}

/** The spans of a kind; neighbours that are too narrow to be told apart are one bar. */
export function barsOf(spans: Span[], kind: SpanKind, narrowMs: number): Bar[] {
  const bars: Bar[] = [];
  let lastIsNarrow = false;
  for (const span of spans) {
    if (span.kind !== kind) continue;
    const last = bars.at(-1);
    const isNarrow = span.endMs - span.beginMs < narrowMs;
    if (last !== undefined && isNarrow && lastIsNarrow && span.beginMs - last.endMs < narrowMs / 4) {
      last.endMs = Math.max(last.endMs, span.endMs);
      last.steps++;
    } else {
      bars.push({ beginMs: span.beginMs, endMs: span.endMs, steps: 1 });
    }
    lastIsNarrow = isNarrow;
  }
  return bars;
}

/** A row in words, for those who cannot see it. */
export function describeRow(row: RequestRow): string {
  const of = (kind: SpanKind) => row.spans.filter((span) => span.kind === kind);
  const sum = (spans: Span[], read: (span: Span) => number) => spans.reduce((total, span) => total + read(span), 0);
  const parts = [row.id ?? `request ${row.number}`, row.state];
  for (const kind of ["waiting", "preempted"] as const) {
    const ms = sum(of(kind), (span) => span.endMs - span.beginMs);
    if (ms > 0) parts.push(`${kind} for ${duration(ms)}`);
  }
  for (const kind of ["prefill", "decode"] as const) {
    const spans = of(kind);
    if (spans.length > 0) {
      parts.push(`${grouped(sum(spans, (span) => span.tokens))} ${kind} tokens in ${plural(spans.length, "step")}`);
    }
  }
  return parts.join(", ");
}
