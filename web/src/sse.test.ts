import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "./sse";

const kStream =
  "\r\n: keep-alive\r\ndata: one\r\n\r\nevent: note\ndata:two\ndata: lines\n\nid: 7\nretry: 9\rdata\r\rdata:  spaced\n\n: end\n\ndata: lost";
const kEvents = [
  { event: "", data: "one" },
  { event: "note", data: "two\nlines" },
  { event: "", data: "" },
  { event: "", data: " spaced" },
];

test("events are the same wherever the stream is cut", () => {
  for (let a = 0; a <= kStream.length; a++) {
    for (let b = a; b <= kStream.length; b += 7) {
      const parser = new SseParser();
      const events = [kStream.slice(0, a), kStream.slice(a, b), kStream.slice(b)].flatMap((part) => parser.push(part));
      assert.deepEqual(events, kEvents, `cut at ${a} and ${b}`);
    }
  }
});

test("an event is delivered with the blank line, not before", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.push("data: x\n"), []);
  assert.deepEqual(parser.push("\n"), [{ event: "", data: "x" }]);
  assert.deepEqual(parser.push("\n\n\n"), []);
});
