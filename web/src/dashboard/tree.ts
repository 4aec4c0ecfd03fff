// The prefix tree as rows of what is expanded. Plain data; drawing is in tree_view.ts.

import type { TreeNode } from "./wire";

/** A node, or what texts of one salt have in common: then `node` is null. */
export interface TreeItem {
  key: string;
  node: TreeNode | null;
  label: string;
  children: TreeItem[];
  nodesBelow: number;
  blocksBelow: number;
  sequencesBelow: number;
}

export interface TreeRow {
  item: TreeItem;
  parent: number; // Row; -1 = none.
  level: number; // From 1.
  position: number; // Among its siblings, from 1.
  siblings: number;
  expanded: boolean | null; // null = has no children.
}

/** Roots by the blocks below them; so are all siblings. Nodes whose parent is not there are roots too. */
export function buildTree(nodes: TreeNode[]): TreeItem[] {
  const items = new Map<number, TreeItem>();
  for (const node of nodes) {
    const label = `${node.textBegin} to ${node.textBegin + node.tokens}`;
    const item = { key: String(node.id), node, label, children: [], nodesBelow: 0, blocksBelow: 0, sequencesBelow: 0 };
    items.set(node.id, item);
  }
  const roots: TreeItem[] = [];
  for (const item of items.values()) {
    const parent = item.node!.parent === null ? undefined : items.get(item.node!.parent);
    (parent?.children ?? roots).push(item);
  }
  const salts = new Map<string, TreeItem[]>();
  for (const root of roots) salts.set(root.node!.namespace, [...(salts.get(root.node!.namespace) ?? []), root]);
  const tops =
    salts.size < 2
      ? roots
      : [...salts].map(([salt, children]) => ({
          key: `salt ${salt}`,
          node: null,
          label: salt === "0" ? "no salt" : `salt ${salt}`,
          children,
          nodesBelow: 0,
          blocksBelow: 0,
          sequencesBelow: 0,
        }));
  addUp(tops);
  return tops;
}

const size = (item: TreeItem) => item.blocksBelow + (item.node?.blocks ?? 0);

/** Without recursion: a chat of many turns is a deep tree. */
function addUp(tops: TreeItem[]): void {
  const order: TreeItem[] = [...tops];
  for (let i = 0; i < order.length; i++) for (const child of order[i]!.children) order.push(child);
  for (const item of order.reverse()) {
    for (const child of item.children) {
      item.nodesBelow += child.nodesBelow + 1;
      item.blocksBelow += size(child);
      item.sequencesBelow += child.sequencesBelow + (child.node?.sequences ?? 0);
    }
    item.children.sort((a, b) => size(b) - size(a) || (a.node?.id ?? 0) - (b.node?.id ?? 0));
  }
  tops.sort((a, b) => size(b) - size(a) || (a.key < b.key ? -1 : 1));
}

export function visibleRows(tops: TreeItem[], isExpanded: (key: string) => boolean): TreeRow[] {
  const rows: TreeRow[] = [];
  const stack = [{ items: tops, next: 0, parent: -1 }];
  while (stack.length > 0) {
    const { items, next, parent } = stack.at(-1)!;
    const item = items[next];
    if (item === undefined) {
      stack.pop();
      continue;
    }
    stack.at(-1)!.next++;
    const expanded = item.children.length === 0 ? null : isExpanded(item.key);
    rows.push({ item, parent, level: stack.length, position: next + 1, siblings: items.length, expanded });
    if (expanded === true) stack.push({ items: item.children, next: 0, parent: rows.length - 1 });
  }
  return rows;
}

/** Keys of all items with children. */
export function allKeys(tops: TreeItem[]): string[] {
  const order = [...tops];
  for (let i = 0; i < order.length; i++) for (const child of order[i]!.children) order.push(child);
  return order.filter((item) => item.children.length > 0).map((item) => item.key);
}
