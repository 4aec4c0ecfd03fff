import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Poller } from "./poller";

// Node's own mock timers differ between the versions that this has to run on.
const real = { setTimeout, clearTimeout };
let timers = new Map<number, { at: number; run: () => void }>();
let now = 0;
let handles = 0;
Object.assign(globalThis, {
  setTimeout: (run: () => void, ms: number) => {
    timers.set(++handles, { at: now + ms, run });
    return handles;
  },
  clearTimeout: (handle: number) => timers.delete(handle),
});
after(() => Object.assign(globalThis, real));

function tick(ms: number): void {
  const end = now + ms;
  for (;;) {
    const due = [...timers].filter(([, timer]) => timer.at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
    if (due === undefined) break;
    timers.delete(due[0]);
    now = due[1].at;
    due[1].run();
  }
  now = end;
}

/** Rounds that end when the test says so, on timers that it moves. */
function setUp(failed: (error: unknown) => number | null = () => null) {
  timers = new Map();
  const rounds: { done: () => void; fail: (error: unknown) => void }[] = [];
  const round = () => new Promise<void>((done, fail) => void rounds.push({ done, fail }));
  return { rounds, poller: new Poller({ round, failed }, 1000) };
}
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test("a round begins some time after the last one has ended, never beside it", async () => {
  const { rounds, poller } = setUp();
  poller.kick();
  tick(5000);
  assert.equal(rounds.length, 1);
  rounds[0]!.done();
  await settle();
  tick(999);
  assert.equal(rounds.length, 1);
  tick(1);
  assert.equal(rounds.length, 2);
});

test("paused or hidden it asks nothing, and at once when it goes on", async () => {
  const { rounds, poller } = setUp();
  poller.kick();
  poller.setPaused(true);
  rounds[0]!.done();
  await settle();
  tick(10_000);
  assert.equal(rounds.length, 1);
  poller.setHidden(true);
  poller.setPaused(false);
  tick(10_000);
  assert.equal(rounds.length, 1, "still hidden");
  poller.setHidden(false);
  assert.equal(rounds.length, 2);
});

test("a kick during a round makes another one right after it", async () => {
  const { rounds, poller } = setUp();
  poller.kick();
  poller.setEvery(60_000);
  rounds[0]!.done();
  await settle();
  assert.equal(rounds.length, 2);
  rounds[1]!.done();
  await settle();
  tick(59_999);
  assert.equal(rounds.length, 2);
});

test("a failure decides when the next try is, or that there is none", async () => {
  const waits: (number | null)[] = [200, null];
  const { rounds, poller } = setUp(() => waits.shift() ?? null);
  poller.kick();
  rounds[0]!.fail(new Error("away"));
  await settle();
  tick(200);
  assert.equal(rounds.length, 2);
  rounds[1]!.fail(new Error("locked"));
  await settle();
  tick(100_000);
  assert.equal(rounds.length, 2);
  poller.kick();
  assert.equal(rounds.length, 3);
});
