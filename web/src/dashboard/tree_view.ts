// Draws the prefix tree: only the rows that can be seen are in the document, so that ten thousand nodes are as quick as
// ten. Keyboard and roles are those of the tree pattern of the ARIA Authoring Practices.

import { el } from "../dom";
import { ago, grouped, plural } from "../format";
import { allKeys, buildTree, visibleRows, type TreeItem, type TreeRow } from "./tree";
import type { Memory } from "./wire";

const kRowHeight = 34; // Pixels; as in dashboard.css.
const kSpare = 4; // Rows above and below what can be seen.
const kOpenAtFirst = 30; // So few nodes are shown at once.

export class TreeView {
  private tops: TreeItem[] = [];
  private rows: TreeRow[] = [];
  private readonly expanded = new Set<string>();
  private active: string | null = null;
  private readonly body = el("div", { role: "none", class: "tree-body" });
  private known = false;

  constructor(
    private readonly root: HTMLElement,
    private readonly note: HTMLElement,
    expandAll: HTMLButtonElement,
    collapseAll: HTMLButtonElement,
  ) {
    root.append(this.body);
    root.addEventListener("scroll", () => this.draw(), { passive: true });
    root.addEventListener("keydown", (event) => this.onKey(event));
    root.addEventListener("focus", () => this.draw());
    root.addEventListener("blur", () => this.draw());
    this.body.addEventListener("click", (event) => this.onClick(event));
    expandAll.addEventListener("click", () => {
      for (const key of allKeys(this.tops)) this.expanded.add(key);
      this.refresh();
    });
    collapseAll.addEventListener("click", () => {
      this.expanded.clear();
      this.refresh();
    });
  }

  show(memory: Memory): void {
    this.tops = buildTree(memory.nodes);
    const keys = allKeys(this.tops);
    if (!this.known && memory.nodes.length > 0) {
      this.known = true;
      if (memory.nodes.length <= kOpenAtFirst) for (const key of keys) this.expanded.add(key);
      else if (this.tops.length === 1) this.expanded.add(this.tops[0]!.key);
    }
    const there = new Set(keys);
    for (const key of this.expanded) if (!there.has(key)) this.expanded.delete(key);
    const left = memory.nodesTotal - memory.nodes.length;
    this.note.textContent =
      memory.nodes.length === 0
        ? "Nothing is cached yet."
        : `${plural(memory.nodesTotal, "piece")} of text${left > 0 ? `, ${grouped(left)} of them not listed` : ""}.`;
    this.root.hidden = memory.nodes.length === 0;
    this.refresh();
  }

  private refresh(): void {
    this.rows = visibleRows(this.tops, (key) => this.expanded.has(key));
    if (!this.rows.some((row) => row.item.key === this.active)) this.active = this.rows[0]?.item.key ?? null;
    this.body.style.height = `${this.rows.length * kRowHeight}px`;
    this.draw();
  }

  private activeIndex(): number {
    return this.rows.findIndex((row) => row.item.key === this.active);
  }

  private draw(): void {
    const first = Math.max(Math.floor(this.root.scrollTop / kRowHeight) - kSpare, 0);
    const last = Math.ceil((this.root.scrollTop + this.root.clientHeight) / kRowHeight) + kSpare;
    const drawn = this.rows.slice(first, last).map((row, i) => this.rowOf(row, first + i));
    this.body.replaceChildren(...drawn);
    const shown = this.active !== null && drawn.some((row) => row.id === idOf(this.active!));
    if (shown) this.root.setAttribute("aria-activedescendant", idOf(this.active!));
    else this.root.removeAttribute("aria-activedescendant");
  }

  private rowOf(row: TreeRow, index: number): HTMLElement {
    const { item, level, position, siblings, expanded } = row;
    const element = el(
      "div",
      {
        role: "treeitem",
        id: idOf(item.key),
        "aria-level": String(level),
        "aria-posinset": String(position),
        "aria-setsize": String(siblings),
        "data-index": String(index),
      },
      el("span", { class: "twist", "aria-hidden": "true" }, expanded === null ? "" : expanded ? "▾" : "▸"),
      el(
        "span",
        { class: "label" },
        ...(item.node === null ? [] : [el("span", { class: "unit" }, "tokens ")]),
        item.label,
      ),
      ...factsOf(item, expanded === false).map(([kind, fact]) => el("span", { class: `fact ${kind}` }, fact)),
    );
    if (expanded !== null) element.setAttribute("aria-expanded", String(expanded));
    const active = item.key === this.active;
    element.setAttribute("aria-selected", String(active));
    element.style.top = `${index * kRowHeight}px`;
    element.style.setProperty("--level", String(Math.min(level - 1, 12)));
    return element;
  }

  private onClick(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-index]") : null;
    const row = this.rows[Number(target?.dataset["index"] ?? -1)];
    if (row === undefined) return;
    this.active = row.item.key;
    if (row.expanded !== null) this.toggle(row.item.key, !row.expanded);
    else this.draw();
  }

  private toggle(key: string, open: boolean): void {
    if (open) this.expanded.add(key);
    else this.expanded.delete(key);
    this.refresh();
  }

  private onKey(event: KeyboardEvent): void {
    const at = this.activeIndex();
    const row = this.rows[at];
    if (row === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(Math.floor(this.root.clientHeight / kRowHeight) - 1, 1);
    const moves: Record<string, () => number | void> = {
      ArrowDown: () => at + 1,
      ArrowUp: () => at - 1,
      PageDown: () => at + page,
      PageUp: () => at - page,
      Home: () => 0,
      End: () => this.rows.length - 1,
      ArrowRight: () => (row.expanded === false ? this.toggle(row.item.key, true) : row.expanded ? at + 1 : undefined),
      ArrowLeft: () =>
        row.expanded === true ? this.toggle(row.item.key, false) : row.parent >= 0 ? row.parent : undefined,
      Enter: () => (row.expanded === null ? undefined : this.toggle(row.item.key, !row.expanded)),
      " ": () => (row.expanded === null ? undefined : this.toggle(row.item.key, !row.expanded)),
    };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    const to = move();
    if (typeof to === "number") this.moveTo(Math.min(Math.max(to, 0), this.rows.length - 1));
  }

  private moveTo(index: number): void {
    this.active = this.rows[index]!.item.key;
    const top = index * kRowHeight;
    const height = this.root.clientHeight;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + kRowHeight > this.root.scrollTop + height) this.root.scrollTop = top + kRowHeight - height;
    this.draw();
  }
}

const idOf = (key: string) => `node-${key.replace(/\W/g, "-")}`;

/** What is known of an item, each with its kind for the style sheet; a collapsed one speaks for all below it. */
function factsOf({ node, nodesBelow, blocksBelow, sequencesBelow }: TreeItem, collapsed: boolean): [string, string][] {
  const facts: [string, string][] = [];
  if (node !== null) {
    facts.push(["blocks", plural(node.blocks, "block")]);
    if (node.holes > 0) facts.push(["holes", plural(node.holes, "hole")]);
    if (node.operations > 0) facts.push(["operations", plural(node.operations, "operation")]);
  }
  const references = (node?.sequences ?? 0) + (collapsed ? sequencesBelow : 0);
  if (references > 0) facts.push(["references", `used by ${plural(references, "request")}`]);
  else if (node !== null && node.idleS !== null) facts.push(["idle", `used ${ago(node.idleS * 1000)}`]);
  if (node?.retention) facts.push(["class", node.retention]);
  if (collapsed || node === null)
    facts.push(["below", `${grouped(nodesBelow)} below with ${plural(blocksBelow, "block")}`]);
  return facts;
}
