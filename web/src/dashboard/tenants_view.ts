// What each tenant used, and what that cost and earned where there are prices.

import { byId, el } from "../dom";
import { duration, grouped, money, percent } from "../format";
import type { Usage } from "./wire";

const kDayMs = 86_400_000;

interface Column {
  name: string;
  cell(row: Usage): string;
  money?: boolean; // Left out where nobody has prices.
}

const kColumns: Column[] = [
  { name: "Requests", cell: (row) => grouped(row.requests) },
  { name: "Prompt tokens", cell: (row) => grouped(row.promptTokens) },
  { name: "cached", cell: (row) => (row.promptTokens > 0 ? percent(row.cachedTokens / row.promptTokens) : "–") },
  { name: "Output tokens", cell: (row) => grouped(row.generatedTokens) },
  { name: "Step time", cell: (row) => duration(row.stepSeconds * 1000) },
  { name: "Cost", cell: (row) => money(row.cost, row.currency), money: true },
  { name: "Revenue", cell: (row) => money(row.revenue, row.currency), money: true },
  { name: "Margin", cell: (row) => (row.margin === null ? "–" : percent(row.margin)), money: true },
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
    const columns = kColumns.filter((column) => column.money !== true || rows.some((row) => row.cost !== null));
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
