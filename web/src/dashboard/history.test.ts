import assert from "node:assert/strict";
import { test } from "node:test";
import { History, kHistoryMs } from "./history";
import { parseState } from "./wire";

const state = (nowMs: number, tokens: number, steps: number) =>
  parseState({
    now_ms: nowMs,
    counts: { running: 2 },
    since_start: {
      prompt_tokens: 4 * tokens,
      cached_tokens: tokens,
      output_tokens: tokens,
      steps,
      step_ms: 20 * steps,
    },
  });

test("rates come from the differences of the counters over some seconds", () => {
  const history = new History();
  assert.equal(history.add(state(1000, 0, 0)), true);
  assert.equal(history.latest?.tokensOut, null, "one look tells no rate");
  for (let s = 2; s <= 20; s++) history.add(state(s * 1000, 100 * (s - 1), 10 * (s - 1)));
  assert.equal(history.latest?.tokensOut, 100);
  assert.equal(history.latest?.tokensIn, 400);
  assert.equal(history.latest?.stepMs, 20);
  assert.equal(history.hitRate, 0.25);
  history.add(state(30_000, 1900, 190));
  assert.equal(history.latest?.tokensOut, 0, "after a long silence the last look counts");
  assert.equal(history.latest?.stepMs, null);
});

test("looks that follow too closely make no rates of noise", () => {
  const history = new History();
  history.add(state(1000, 0, 0));
  history.add(state(1010, 50, 1));
  assert.equal(history.samples.length, 1);
  history.add(state(2000, 100, 5));
  assert.equal(history.latest?.tokensOut, 100);
});

test("what is older than the history is forgotten", () => {
  const history = new History();
  for (let s = 0; s < 900; s++) history.add(state(s * 1000, s, s));
  assert.equal(history.samples.length, kHistoryMs / 1000 + 1);
  assert.equal(history.samples[0]?.atMs, 899_000 - kHistoryMs);
});

test("a server that was started again begins a new history", () => {
  const history = new History();
  history.add(state(50_000, 500, 50));
  assert.equal(history.add(state(900, 0, 0)), false);
  assert.equal(history.samples.length, 1);
  assert.equal(history.add(state(1900, 10, 1)), true);
  assert.equal(history.latest?.tokensOut, 10);
});
