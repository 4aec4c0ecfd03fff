import assert from "node:assert/strict";
import { test } from "node:test";
import { splitThinking } from "./thinking";

const parts = (text: string) => {
  const { thinking, thinkingOpen, answer } = splitThinking(text);
  return [thinking, thinkingOpen, answer];
};

test("reasoning before the answer is split off", () => {
  assert.deepEqual(parts("<think>\nhmm\n</think>\n\nYes"), ["hmm", false, "Yes"]);
  assert.deepEqual(parts("<think>hmm"), ["hmm", true, ""]);
  assert.deepEqual(parts("hmm\n</think>\n\nYes"), ["hmm", false, "Yes"]);
  assert.deepEqual(parts("<think>\n\n</think>\n\nYes"), [null, false, "Yes"]);
});

test("an answer that only speaks of the tag stays whole", () => {
  for (const text of ["Plain", "Write <think> first", "Use `</think>` to close", "a </think> b"]) {
    assert.deepEqual(parts(text), [null, false, text]);
  }
});

test("a growing text never shows a piece of the tag as the answer", () => {
  const text = "<think>why</think>Because";
  for (let n = 0; n <= text.length; n++) {
    assert.ok("Because".startsWith(splitThinking(text.slice(0, n)).answer), text.slice(0, n));
  }
});
