// Draws who has the blocks: a map for each tier, and beside it a table that says the same.

import { el } from "../dom";
import { grouped, percent } from "../format";
import { layoutMap, ownersOf, type Owner } from "./owners";
import { paintBox, palette, sized, type Pattern } from "./paint";
import { describeTier, tierName } from "./tiers";
import { shortName } from "./timeline_view";
import type { Memory } from "./wire";

const kHeight = 240; // Pixels, at most.
const kSideMin = 7;
const kSideMax = 22;
const kShades = ["shade-1", "shade-2", "shade-3", "shade-4"] as const;
const kInk = [...kShades, "shared", "cached", "pinned", "free", "raised", "ink"] as const;
type Ink = Record<(typeof kInk)[number], string>;

interface Look {
  pattern: Pattern;
  colour: string;
  ink: string;
}

interface TierElements {
  root: HTMLElement;
  canvas: HTMLCanvasElement;
  scale: HTMLElement;
  body: HTMLElement;
  title: HTMLElement;
  owners: HTMLElement; // The table.
}

export class MemoryView {
  private readonly tiers = new Map<string, TierElements>();
  private memory: Memory | null = null;

  constructor(
    private readonly root: HTMLElement,
    private readonly by: HTMLSelectElement,
  ) {
    by.addEventListener("change", () => this.draw());
  }

  show(memory: Memory): void {
    this.memory = memory;
    this.draw();
  }

  /** Draws again: sizes or colours have changed. */
  draw(): void {
    if (this.memory === null) return;
    const by = this.by.value === "tenant" ? "tenant" : "request";
    const ink = palette(this.root, kInk);
    const names = new Set(this.memory.tiers.map((tier) => tier.name));
    for (const [name, elements] of this.tiers) {
      if (names.has(name)) continue;
      elements.root.remove();
      this.tiers.delete(name);
    }
    for (const tier of this.memory.tiers) {
      const elements = this.tiers.get(tier.name) ?? this.make(tier.name);
      const owners = ownersOf(tier, this.memory, by);
      elements.title.textContent = describeTier(tier, this.memory.blockTokens);
      elements.owners.hidden = owners.length === 0;
      drawMap(elements, owners, ink);
      elements.body.replaceChildren(...owners.map((owner) => rowOf(owner, tier.blocks.total)));
      for (const [i, swatch] of [...elements.body.querySelectorAll("canvas")].entries()) {
        const surface = sized(swatch);
        const owner = owners[i];
        if (surface === null || owner === undefined) continue;
        const { pattern, colour, ink: mark } = lookOf(owner, ink);
        paintBox(surface.context, 0, 0, surface.width, surface.height, pattern, colour, mark);
      }
    }
  }

  private make(name: string): TierElements {
    const canvas = el("canvas", { class: "map", "aria-hidden": "true" });
    const scale = el("p", { class: "hint" });
    const body = el("tbody");
    const title = el("h3");
    const head = el("tr", {}, ...["Owner", "Blocks", "Share"].map((text) => el("th", { scope: "col" }, text)));
    const table = el(
      "table",
      {},
      el("caption", { class: "visually-hidden" }, `Blocks of ${tierName(name)} by owner`),
      el("thead", {}, head),
      body,
    );
    const root = el("div", { class: "tier" }, title, el("div", { class: "map-box" }, canvas, scale), table);
    const elements = { root, canvas, scale, body, title, owners: table };
    this.root.append(root);
    this.tiers.set(name, elements);
    return elements;
  }
}

function rowOf(owner: Owner, total: number): HTMLElement {
  const name = owner.kind === "request" ? shortName(owner.name) : owner.name;
  return el(
    "tr",
    {},
    el("th", { scope: "row", title: owner.name }, el("canvas", { class: "swatch", "aria-hidden": "true" }), name),
    el("td", {}, grouped(owner.blocks)),
    el("td", {}, total > 0 ? percent(owner.blocks / total) : ""),
  );
}

function lookOf(owner: Owner, ink: Ink): Look {
  switch (owner.kind) {
    case "request":
    case "tenant": {
      const pattern = (["solid", "stripes", "cross"] as const)[Math.floor(owner.shade / kShades.length) % 3]!;
      return { pattern, colour: ink[kShades[owner.shade % kShades.length]!], ink: ink.raised };
    }
    case "shared":
      return { pattern: "stripes", colour: ink.shared, ink: ink.raised };
    case "pinned":
      return { pattern: "dots", colour: ink.pinned, ink: ink.ink };
    case "cached":
      return { pattern: "solid", colour: ink.cached, ink: ink.ink };
    case "free":
      return { pattern: "solid", colour: ink.free, ink: ink.ink };
  }
}

function drawMap({ canvas, scale }: TierElements, owners: Owner[], ink: Ink): void {
  const room = canvas.clientWidth;
  const { blocksPerCell, cells } = layoutMap(owners, Math.floor(room / kSideMin) * Math.floor(kHeight / kSideMin));
  const count = cells.reduce((sum, owned) => sum + owned, 0);
  // The largest square cells that all fit.
  let side = kSideMax;
  while (side > kSideMin && Math.floor(room / side) * Math.floor(kHeight / side) < count) side--;
  const columns = Math.max(Math.floor(room / side), 1);
  canvas.style.height = `${Math.ceil(count / columns) * side}px`;
  const surface = sized(canvas);
  if (surface === null) return;
  const { context } = surface;
  let cell = 0;
  owners.forEach((owner, i) => {
    const { pattern, colour, ink: mark } = lookOf(owner, ink);
    for (let k = 0; k < cells[i]!; k++, cell++) {
      const x = (cell % columns) * side;
      const y = Math.floor(cell / columns) * side;
      paintBox(context, x, y, side - 1, side - 1, pattern, colour, mark);
    }
  });
  const words = count === 0 ? "" : blocksPerCell === 1 ? "A square is a block." : `A square is ${grouped(blocksPerCell)} blocks.`;
  if (scale.textContent !== words) scale.textContent = words;
}
