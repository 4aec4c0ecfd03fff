import assert from "node:assert/strict";
import { test } from "node:test";
import { describeTier, tierName, tierPhrase } from "./tiers";
import { parseMemory } from "./wire";

const describe = (tier: object) => describeTier(parseMemory({ tiers: [tier] }).tiers[0]!, 16);

test("tiers are called as in the documentation", () => {
  assert.deepEqual(["hot", "cold_memory", "drive"].map(tierName), ["hot memory", "cold memory", "drive"]);
  assert.equal(tierPhrase("drive"), "the drive");
  assert.equal(tierPhrase("cold_memory_and_drive"), "cold memory and the drive");
  assert.equal(tierName("far_away"), "far away");
});

test("a tier that is bounded in bytes is told in bytes, hot memory in blocks", () => {
  assert.equal(describe({ name: "hot", blocks: { total: 2048 } }), "Hot memory: 2,048 blocks of 16 tokens");
  const drive = { name: "drive", state: "writing", reason: "", bytes: 0, bytes_max: 20 * 2 ** 30 };
  assert.equal(
    describe({ ...drive, blocks: { total: null, free: null, cached: 0 } }),
    "Drive: 0 blocks of 16 tokens, 0 B of 20.0 GiB",
  );
  assert.equal(
    describe({ ...drive, bytes: 3 * 2 ** 20, state: "full", reason: "no room", blocks: { total: 9, cached: 1 } }),
    "Drive: 1 block of 16 tokens, 3.0 MiB of 20.0 GiB; full: no room",
  );
});
