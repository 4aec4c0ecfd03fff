import assert from "node:assert/strict";
import { test } from "node:test";
import { buildRequest, defaultSettings, kNumberFields, parseNumber, parseSettings } from "./settings";

const field = (key: string) => kNumberFields.find((candidate) => candidate.key === key)!;

test("a field is a number within its limits, or empty", () => {
  assert.deepEqual(parseNumber(field("temperature"), " 0,7 "), { value: 0.7 });
  assert.deepEqual(parseNumber(field("temperature"), ""), { value: null });
  assert.deepEqual(parseNumber(field("seed"), "0"), { value: 0 });
  for (const [key, text] of [
    ["temperature", "3"],
    ["temperature", "x"],
    ["top_k", "1.5"],
    ["max_tokens", "0"],
    ["seed", "-1"],
    ["top_p", "Infinity"],
  ]) {
    assert.ok("problem" in parseNumber(field(key!), text!), `${key} = ${text}`);
  }
});

test("what was not set is not sent", () => {
  const messages = [{ role: "user" as const, content: "hi" }];
  assert.deepEqual(buildRequest("m", messages, defaultSettings()), {
    model: "m",
    messages,
    stream: true,
    stream_options: { include_usage: true },
  });
  const set = { ...defaultSettings(), numbers: { temperature: 0, top_k: 5, seed: 1 } };
  const request = buildRequest("m", messages, set);
  assert.deepEqual([request.temperature, request.top_k, request.seed], [0, 5, 1]);
});

test("stored settings come back; foreign ones do no harm", () => {
  const settings = { system: "Be brief.", model: "m", numbers: { temperature: 0.5, max_tokens: 64 } };
  assert.deepEqual(parseSettings(JSON.stringify(settings)), settings);
  for (const json of [
    null,
    "",
    "{",
    "null",
    "7",
    "[]",
    `{"numbers":7}`,
    `{"system":3,"numbers":{"seed":"1","top_p":9,"x":1}}`,
  ]) {
    assert.deepEqual(parseSettings(json), defaultSettings(), String(json));
  }
});
