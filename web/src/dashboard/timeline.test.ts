import assert from "node:assert/strict";
import { test } from "node:test";
import { describeRow, kKeptMs, Timeline } from "./timeline";
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
