// Who has the blocks of a tier, and how a map of them is laid out. Plain data; drawing is in memory_view.ts.

import type { Memory, Tier } from "./wire";

const kNamedMax = 12; // Owners with a row of their own; the smaller ones are one.

export type OwnerKind = "request" | "tenant" | "shared" | "cached" | "pinned" | "free";

export interface Owner {
  kind: OwnerKind;
  name: string;
  blocks: number;
  shade: number; // Index among those of its kind.
}

/** The owners of a tier's blocks, in the order of the map; their blocks add up to the tier's. */
export function ownersOf(tier: Tier, memory: Memory, by: "request" | "tenant"): Owner[] {
  const { total, free, cached, pinned, referenced } = tier.blocks;
  const sums = new Map<string, number>();
  for (const request of tier === memory.tiers[0] ? memory.requests : []) {
    const name = by === "request" ? request.name : request.tenant;
    if (request.blocks > 0) sums.set(name, (sums.get(name) ?? 0) + request.blocks);
  }
  const sorted = [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const named = sorted.slice(0, kNamedMax);
  const others = sorted.slice(kNamedMax);
  if (others.length > 0) {
    named.push([`${others.length} more ${by}s`, others.reduce((sum, [, blocks]) => sum + blocks, 0)]);
  }
  // Figures of one snapshot agree, but a frame that is being copied is counted once more.
  let left = referenced;
  const owners: Owner[] = named.map(([name, blocks], shade) => {
    const taken = Math.min(blocks, left);
    left -= taken;
    return { kind: by, name, blocks: taken, shade };
  });
  owners.push({ kind: "shared", name: "shared by requests", blocks: left, shade: 0 });
  owners.push({ kind: "pinned", name: "cached, pinned", blocks: Math.min(pinned, cached), shade: 0 });
  owners.push({ kind: "cached", name: "cached, not in use", blocks: Math.max(cached - pinned, 0), shade: 0 });
  const rest = Math.max(total - referenced - cached, 0);
  owners.push({ kind: "free", name: "free", blocks: Math.max(free, rest), shade: 0 });
  return owners.filter((owner) => owner.blocks > 0);
}

export interface MapLayout {
  blocksPerCell: number;
  cells: number[]; // Of each owner; who has a block has a cell.
}

export function layoutMap(owners: Owner[], cellsMax: number): MapLayout {
  const total = owners.reduce((sum, owner) => sum + owner.blocks, 0);
  const blocksPerCell = Math.max(1, Math.ceil(total / cellsMax));
  return { blocksPerCell, cells: owners.map((owner) => Math.max(1, Math.round(owner.blocks / blocksPerCell))) };
}
