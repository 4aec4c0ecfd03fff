import assert from "node:assert/strict";
import { test } from "node:test";
import { allKeys, buildTree, visibleRows } from "./tree";
import { parseMemory } from "./wire";

const node = (id: number, parent: number | null, blocks: number, more: object = {}) => ({
  id,
  parent,
  namespace: 0,
  blocks,
  text_begin: 0,
  tokens: 16 * blocks,
  ...more,
});
const build = (nodes: object[]) => buildTree(parseMemory({ nodes }).nodes);
const shape = (rows: ReturnType<typeof visibleRows>) => rows.map((row) => `${"-".repeat(row.level)}${row.item.key}`);

test("siblings are in order of the blocks below them, and sums are of all that is below", () => {
  const tops = build([
    node(1, null, 1),
    node(2, null, 2),
    node(3, 1, 4, { sequences: 1 }),
    node(4, 1, 5),
    node(5, 3, 9),
  ]);
  assert.deepEqual(shape(visibleRows(tops, () => true)), ["-1", "--3", "---5", "--4", "-2"]);
  const { nodesBelow, blocksBelow, sequencesBelow } = tops[0]!;
  assert.deepEqual([nodesBelow, blocksBelow, sequencesBelow], [3, 18, 1]);
});

test("only what is expanded is there, and rows know their place", () => {
  const tops = build([node(1, null, 1), node(2, 1, 1), node(3, 1, 1), node(4, 2, 1)]);
  assert.deepEqual(shape(visibleRows(tops, () => false)), ["-1"]);
  const rows = visibleRows(tops, (key) => key === "1");
  assert.deepEqual(shape(rows), ["-1", "--2", "--3"]);
  assert.deepEqual(
    rows.map(({ parent, position, siblings, expanded }) => [parent, position, siblings, expanded]),
    [
      [-1, 1, 1, true],
      [0, 1, 2, false],
      [0, 2, 2, null],
    ],
  );
  assert.deepEqual(allKeys(tops).sort(), ["1", "2"]);
});

test("texts of several salts are apart; those of one need no name for it", () => {
  const tops = build([node(1, null, 1), node(2, null, 5, { namespace: "77" })]);
  assert.deepEqual(shape(visibleRows(tops, () => true)), ["-salt 77", "--2", "-salt 0", "--1"]);
  assert.equal(tops[1]!.label, "no salt");
});

test("a node whose parent is not listed is a root", () => {
  assert.deepEqual(shape(visibleRows(build([node(5, 99, 1)]), () => true)), ["-5"]);
});

test("a chat of a hundred thousand turns is no deeper than the stack", () => {
  const nodes = Array.from({ length: 100_000 }, (_, i) => node(i + 1, i === 0 ? null : i, 1));
  const tops = build(nodes);
  assert.equal(tops[0]!.blocksBelow, 99_999);
  assert.equal(visibleRows(tops, () => true).length, 100_000);
});
