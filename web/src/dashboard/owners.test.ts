import assert from "node:assert/strict";
import { test } from "node:test";
import { layoutMap, ownersOf } from "./owners";
import { parseMemory } from "./wire";

const memory = (requests: object[], blocks: object = {}) =>
  parseMemory({
    block_tokens: 16,
    tiers: [{ name: "hot", blocks: { total: 100, free: 40, cached: 30, pinned: 10, referenced: 30, ...blocks } }],
    requests,
  });
const show = (from: ReturnType<typeof memory>, by: "request" | "tenant") =>
  ownersOf(from.tiers[0]!, from, by).map((owner) => `${owner.name}: ${owner.blocks}`);

test("blocks are the requests', shared, pinned, cached and free, and add up", () => {
  const from = memory([
    { id: 1, request: "chatcmpl-a", tenant: "acme", own_blocks: 5 },
    { id: 2, request: "chatcmpl-b", tenant: "acme", own_blocks: 15 },
    { id: 3, request: null, tenant: "", own_blocks: 2 },
    { id: 4, request: "chatcmpl-waits", tenant: "", own_blocks: 0 },
  ]);
  assert.deepEqual(show(from, "request"), [
    "chatcmpl-b: 15",
    "chatcmpl-a: 5",
    "request 3: 2",
    "shared by requests: 8",
    "cached, pinned: 10",
    "cached, not in use: 20",
    "free: 40",
  ]);
  assert.deepEqual(show(from, "tenant").slice(0, 3), ["acme: 20", "no tenant: 2", "shared by requests: 8"]);
});

test("the smaller ones of many requests are one, and sums never exceed the tier", () => {
  const many = Array.from({ length: 50 }, (_, i) => ({ id: i, request: `r${i}`, own_blocks: i < 2 ? 20 : 1 }));
  const from = memory(many, { referenced: 60, free: 10 });
  const owners = ownersOf(from.tiers[0]!, from, "request");
  assert.equal(
    owners.reduce((sum, owner) => sum + owner.blocks, 0),
    100,
  );
  assert.ok(owners.some((owner) => owner.name === "38 more requests"));
});

test("a map has a cell for everybody, however small, and about as many as fit", () => {
  const owners = [30_000, 1, 29_999].map((blocks, shade) => ({ kind: "request" as const, name: "", blocks, shade }));
  const { blocksPerCell, cells } = layoutMap(owners, 1000);
  assert.equal(blocksPerCell, 60);
  assert.equal(cells[1], 1);
  assert.ok(cells.reduce((sum, n) => sum + n, 0) <= 1000 + owners.length);
  assert.deepEqual(layoutMap(owners.slice(1, 2), 1000), { blocksPerCell: 1, cells: [1] });
});
