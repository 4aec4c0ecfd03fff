import assert from "node:assert/strict";
import { test } from "node:test";
import { barsOf, describeRow, kKeptMs, Timeline } from "./timeline";
import { parseSteps, type LiveRequest } from "./wire";

const steps = (nowMs: number, ...data: object[]) =>
  parseSteps({ now_ms: nowMs, requests: [{ number: 1, id: "chatcmpl-one" }], data });
const live = (number: number, state: string, ageMs: number): LiveRequest => ({
  number,
  id: null,
  state,
  ageMs,
  promptTokens: 0,
  outputTokens: 0,
});
const read = (id: number, startMs: number, prefill: number, more: object = {}) => ({
  id,
  start_ms: startMs,
  ms: 10,
  requests: [{ number: 1, prefill, ...more }],
});
const write = (id: number, startMs: number, more: object = {}) => ({
  id,
  start_ms: startMs,
  ms: 10,
  requests: [{ number: 1, decode: 1 }],
  ...more,
});
const spans = (timeline: Timeline) =>
  timeline.rows(1e9)[0]!.spans.map(({ kind, beginMs, endMs }) => `${kind} ${beginMs}-${endMs}`);

test("a request waits, reads, writes, is put back and goes on", () => {
  const timeline = new Timeline();
  timeline.addSteps(
    steps(200, read(0, 100, 32, { waited_ms: 40 }), write(1, 120), {
      ...write(2, 130),
      requests: [{ number: 2, prefill: 5 }],
      preempted: [1],
    }),
  );
  timeline.addSteps(steps(300, read(3, 250, 33), write(4, 270)));
  assert.deepEqual(spans(timeline).length, 1);
  const one = timeline.rows(1e9).find((row) => row.number === 1)!;
  assert.deepEqual(
    one.spans.map(({ kind, beginMs, endMs }) => `${kind} ${beginMs}-${endMs}`),
    ["waiting 60-100", "prefill 100-110", "decode 120-130", "preempted 130-250", "prefill 250-260", "decode 270-280"],
  );
  assert.equal(
    describeRow(one),
    "chatcmpl-one, ended, waiting for 40.0 ms, preempted for 120 ms, 65 prefill tokens in 2 steps, 2 decode tokens in 2 steps",
  );
});

test("a wait that was seen is not told twice, and goes on until its first step", () => {
  const timeline = new Timeline();
  timeline.addLive([live(1, "waiting", 30)], 100);
  assert.deepEqual(spans(timeline), ["waiting 70-100"]);
  timeline.addLive([live(1, "waiting", 130)], 200);
  assert.deepEqual(spans(timeline), ["waiting 70-200"]);
  timeline.addSteps(steps(300, read(0, 250, 8, { waited_ms: 180 })));
  timeline.addLive([live(1, "running", 230)], 300);
  assert.deepEqual(spans(timeline), ["waiting 70-250", "prefill 250-260"]);
});

test("one that is put back while nothing runs is seen too", () => {
  const timeline = new Timeline();
  timeline.addSteps(steps(100, read(0, 50, 8)));
  timeline.addLive([live(1, "preempted", 60)], 150);
  assert.deepEqual(spans(timeline), ["prefill 50-60", "preempted 60-150"]);
});

test("one whose steps are newer than the list of who is there has not ended", () => {
  const timeline = new Timeline();
  timeline.addSteps(steps(100, read(0, 50, 8)));
  timeline.addLive([], 40);
  assert.equal(timeline.rows(1e9)[0]?.state, "running");
  timeline.addLive([], 140);
  assert.equal(timeline.rows(1e9)[0]?.state, "ended");
});

test("steps that come twice count once", () => {
  const timeline = new Timeline();
  for (let i = 0; i < 3; i++) timeline.addSteps(steps(100, read(0, 50, 8), write(1, 60)));
  assert.equal(spans(timeline).length, 2);
  assert.equal(timeline.lastStep, 1);
});

test("the latest arrival is first, and what has left the window is not shown", () => {
  const timeline = new Timeline();
  timeline.addSteps(steps(1000, read(0, 100, 8)));
  timeline.addLive([live(7, "waiting", 10), live(8, "waiting", 20)], 1000);
  assert.deepEqual(
    timeline.rows(10_000).map((row) => row.number),
    [7, 8, 1],
  );
  assert.deepEqual(
    timeline.rows(500).map((row) => row.number),
    [7, 8],
  );
});

test("what is kept is bounded in time and in number", () => {
  const timeline = new Timeline();
  for (let i = 0; i < 3000; i++) {
    timeline.addSteps(
      steps(i * 100, {
        id: i,
        start_ms: i * 100,
        ms: 10,
        requests: [
          { number: i, prefill: 1 },
          { number: 1e6, decode: 1 },
        ],
      }),
    );
    timeline.addLive([live(1e6, "running", i * 100)], i * 100);
  }
  const rows = timeline.rows(1e9);
  assert.ok(rows.length <= 401, `${rows.length} rows`);
  const old = rows.find((row) => row.number === 1e6)!;
  assert.ok(old.spans.length <= kKeptMs / 100 + 2, `${old.spans.length} spans`);
  assert.equal(old.arrivedMs, 0, "one that goes on stays");
});

test("steps that are too narrow to be told apart are one bar, wide ones stay themselves", () => {
  const step = (beginMs: number, endMs: number) => ({ kind: "decode" as const, beginMs, endMs, tokens: 1 });
  const spans = [step(0, 9), step(10, 19), step(20, 29), step(30, 150), step(151, 160), step(200, 209), step(210, 219)];
  assert.deepEqual(barsOf([...spans, { ...step(0, 9), kind: "prefill" as const }], "decode", 40), [
    { beginMs: 0, endMs: 29, steps: 3 },
    { beginMs: 30, endMs: 150, steps: 1 },
    { beginMs: 151, endMs: 160, steps: 1 },
    { beginMs: 200, endMs: 219, steps: 2 },
  ]);
  assert.equal(barsOf(spans, "decode", 5).length, 7);
});
