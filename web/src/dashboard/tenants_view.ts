// What each tenant used, and what that cost and earned where there are prices.

import { byId, el } from "../dom";
import { byteSize, duration, grouped, money, percent } from "../format";
import type { Usage } from "./wire";

const kDayMs = 86_400_000;

interface Column {
  name: string;
  cell(row: Usage): string;
  known?(row: Usage): boolean; // Left out where it is so of nobody.
}

const hasPrices = (row: Usage) => row.cost !== null;
const byteHours = (byteSeconds: number) => (byteSeconds > 0 ? `${byteSize(byteSeconds / 3600)} h` : "–");

const kColumns: Column[] = [
  { name: "Requests", cell: (row) => grouped(row.requests) },
  { name: "Prompt tokens", cell: (row) => grouped(row.promptTokens) },
  { name: "cached", cell: (row) => (row.promptTokens > 0 ? percent(row.cachedTokens / row.promptTokens) : "–") },
  { name: "Output tokens", cell: (row) => grouped(row.generatedTokens) },
  { name: "Step time", cell: (row) => duration(row.stepSeconds * 1000) },
  { name: "Cold memory", cell: (row) => byteHours(row.coldByteSeconds), known: (row) => row.coldByteSeconds > 0 },
  { name: "Drive", cell: (row) => byteHours(row.driveByteSeconds), known: (row) => row.driveByteSeconds > 0 },
  { name: "Cost", cell: (row) => money(row.cost, row.currency), known: hasPrices },
  { name: "Revenue", cell: (row) => money(row.revenue, row.currency), known: hasPrices },
  { name: "Margin", cell: (row) => (row.margin === null ? "–" : percent(row.margin)), known: hasPrices },
];

export class TenantsView {
  private readonly panel = byId("tenants", HTMLElement);
  private readonly head = byId("usage-head", HTMLElement);
  private readonly body = byId("usage", HTMLElement);
  private readonly note = byId("usage-note", HTMLElement);
  private readonly period = byId("period", HTMLSelectElement);

  constructor(changed: () => void) {
    this.period.addEventListener("change", changed);
  }

  /** Where the server tells it; `now` in milliseconds since 1970. */
  path(now: number): string {
    const days = Number(this.period.value);
    const from = days > 0 ? `&from=${new Date(now - (days - 1) * kDayMs).toISOString().slice(0, 10)}` : "";
    return `kvist/usage?group_by=tenant${from}`;
  }

  hide(): void {
    this.panel.hidden = true;
  }

  show(rows: Usage[]): void {
    const columns = kColumns.filter(({ known }) => known === undefined || rows.some(known));
    this.head.replaceChildren(
      ...["Tenant", ...columns.map(({ name }) => name)].map((name) => el("th", { scope: "col" }, name)),
    );
    this.body.replaceChildren(
      ...rows.map((row) =>
        el("tr", {}, el("th", { scope: "row" }, row.tenant), ...columns.map(({ cell }) => el("td", {}, cell(row)))),
      ),
    );
    this.note.textContent = rows.length === 0 ? "Nothing was used in this time." : "";
    this.panel.hidden = false;
  }
}
