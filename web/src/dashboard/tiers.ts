// Tiers of memory by the names that people have for them, and what is said of one.

import { byteSize, grouped, plural } from "../format";
import type { Tier } from "./wire";

const kNames: Record<string, string> = { hot: "hot memory", cold_memory: "cold memory" };

/** "cold memory", "drive". */
export function tierName(name: string): string {
  return kNames[name] ?? name.replaceAll("_", " ");
}

/** In a sentence, of one or more: "the drive", "cold memory and the drive". */
export function tierPhrase(names: string): string {
  const phrase = (name: string) => (name === "drive" ? "the drive" : tierName(name));
  return names.split("_and_").map(phrase).join(" and ");
}

/** A title: how much there is. Tiers below hot memory are bounded in bytes, not in blocks. */
export function describeTier(tier: Tier, blockTokens: number): string {
  const name = tierName(tier.name);
  const title = name[0]!.toUpperCase() + name.slice(1);
  const tokens = blockTokens > 0 ? ` of ${blockTokens} tokens` : "";
  if (tier.bytesMax === null) return `${title}: ${grouped(tier.blocks.total)} blocks${tokens}`;
  const bytes = `${byteSize(tier.bytes)} of ${byteSize(tier.bytesMax)}`;
  const told = tier.state === null || tier.state === "writing" ? "" : `; ${tier.state}`;
  const why = told === "" || tier.reason === null ? "" : `: ${tier.reason}`;
  return `${title}: ${plural(tier.blocks.cached, "block")}${tokens}, ${bytes}${told}${why}`;
}
