import assert from "node:assert/strict";
import { test } from "node:test";
import { describeSpeed, SpeedMeter } from "./speed";

test("the first token's time is not part of the speed of the others", () => {
  const meter = new SpeedMeter(1000);
  for (const at of [3000, 3100, 3200, 3300, 3400]) meter.onText(at);
  const speed = meter.speed();
  assert.equal(speed.firstTokenMs, 2000);
  assert.equal(speed.tokensPerSecond, 10);
  assert.deepEqual(describeSpeed(speed), ["10.0 tokens/s", "first token 2.00 s", "~5 tokens"]);
});

test("the server's count replaces the page's guess", () => {
  const meter = new SpeedMeter(0);
  meter.onText(100);
  meter.onText(1100);
  meter.onUsage({ promptTokens: 40, completionTokens: 21, cachedTokens: 32 });
  assert.deepEqual(describeSpeed(meter.speed()), [
    "20.0 tokens/s",
    "first token 100 ms",
    "21 tokens",
    "prompt 40, 32 cached",
  ]);
});

test("nothing is claimed before it is known", () => {
  const meter = new SpeedMeter(0);
  assert.deepEqual(describeSpeed(meter.speed()), []);
  meter.onText(50);
  assert.deepEqual(describeSpeed(meter.speed()), ["first token 50 ms", "~1 token"]);
  meter.onText(50); // Two pieces in one read: no time between them.
  assert.equal(meter.speed().tokensPerSecond, null);
});
