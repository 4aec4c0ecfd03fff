import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, byteSize, duration, grouped, money, percent, plural } from "./format";

test("durations keep three digits and a fitting unit", () => {
  const cases: [number, string][] = [
    [0, "0.00 ms"],
    [0.42, "0.42 ms"],
    [12.34, "12.3 ms"],
    [999, "999 ms"],
    [1520, "1.52 s"],
    [119_000, "119 s"],
    [300_000, "5 min"],
    [3 * 3600_000, "3 h"],
    [50 * 3600_000, "2 days"],
  ];
  for (const [ms, text] of cases) assert.equal(duration(ms), text);
});

test("bytes are told in units of 1024", () => {
  const cases: [number, string][] = [
    [0, "0 B"],
    [1023, "1023 B"],
    [1536, "1.5 KiB"],
    [2 ** 20 - 1, "1.0 MiB"],
    [200 * 2 ** 30, "200 GiB"],
    [2 ** 31, "2.0 GiB"],
  ];
  for (const [bytes, text] of cases) assert.equal(byteSize(bytes), text);
});

test("how long ago is told to the second", () => {
  assert.deepEqual([0, 900, 7040, 119_000, 300_000].map(ago), [
    "just now",
    "just now",
    "7 s ago",
    "119 s ago",
    "5 min ago",
  ]);
});

test("counts are grouped, whatever the language of the browser", () => {
  assert.deepEqual([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
  assert.equal(plural(1, "token"), "1 token");
  assert.equal(plural(2048, "token"), "2,048 tokens");
});

test("a share that is not nothing and not all does not look like it", () => {
  assert.deepEqual([0, 0.00001, 0.004, 0.25, 0.996, 0.99999, 1].map(percent), [
    "0 %",
    "<0.1 %",
    "0.4 %",
    "25 %",
    "99.6 %",
    "99.9 %",
    "100 %",
  ]);
});

test("money keeps three digits of what is small, and cents of what is not", () => {
  assert.equal(money(0.000423, "USD"), "0.000423 USD");
  assert.equal(money(0.1, "USD"), "0.100 USD");
  assert.equal(money(1234.5, "EUR"), "1,234.50 EUR");
  assert.equal(money(0, null), "0.00");
  assert.equal(money(-2, null), "−2.00");
  assert.equal(money(1e-12, null), "0.00000000");
  assert.equal(money(null, "USD"), "–");
  assert.equal(percent(-0.25), "−25 %");
});
