import assert from "node:assert/strict";
import { test } from "node:test";
import { parseExplained, parseMemory, parseState, parseSteps } from "./wire";

test("an answer of another version is read as far as it goes, never refused", () => {
  const odd = [
    null,
    7,
    "x",
    [],
    {},
    { data: 3, requests: [null, 4, {}], tiers: [{}], nodes: {}, latency: [], counts: "x" },
  ];
  for (const json of odd) {
    assert.equal(parseState(json).running, 0);
    assert.deepEqual(parseSteps(json).steps, []);
    assert.deepEqual(parseMemory(json).nodes, []);
    assert.deepEqual(parseExplained(json).choices, []);
  }
  assert.equal(parseState({ counts: { running: -1, waiting: "2" } }).waiting, 0);
  assert.equal(
    parseSteps({ data: [{ id: 1, requests: [{ number: 2, prefill: 3 }], preempted: [4, "x"] }] }).steps[0]?.parts[0]
      ?.prefill,
    3,
  );
});

test("of an explanation only what took time or tokens is left", () => {
  const explained = parseExplained({
    id: "chatcmpl-x",
    phases_ms: { prepare: 1.5, queue: null, leader: 0, decode: 20 },
    choices: [{ tokens: { prompt: 5, dropped: 0 }, leader: null, steps: { count: 2 } }],
  });
  assert.deepEqual(explained.phases, [
    ["prepare", 1.5],
    ["decode", 20],
  ]);
  assert.deepEqual(explained.choices[0]?.tokens, [["prompt", 5]]);
  assert.equal(explained.choices[0]?.leader, null);
});
