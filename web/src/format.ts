// Numbers as people read them.

export function significant(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function plural(count: number, noun: string): string {
  return `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** 12345 -> "12,345". */
export function grouped(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** "17 B", "3.2 GiB": one decimal at most, in units of 1024. */
export function byteSize(bytes: number): string {
  if (bytes < 1024) return `${Math.round(bytes)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = bytes / 1024;
  while (value >= 1023.95 && units.length > 1) {
    value /= 1024;
    units.shift();
  }
  return `${value < 99.95 ? value.toFixed(1) : value.toFixed(0)} ${units[0]}`;
}

export function describeTime(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${significant(ms / 1000)} s`;
}

/** A duration from microseconds to days, with three digits at most: "0.42 ms", "12.3 ms", "1.52 s", "5 min", "3 h". */
export function duration(ms: number): string {
  if (ms < 1000) return `${significant(ms)} ms`;
  const s = ms / 1000;
  if (s < 120) return `${significant(s)} s`;
  if (s < 120 * 60) return `${Math.round(s / 60)} min`;
  return s < 48 * 3600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

/** How long ago something was, to the second. */
export function ago(ms: number): string {
  if (ms < 1000) return "just now";
  return ms < 120_000 ? `${Math.round(ms / 1000)} s ago` : `${duration(ms)} ago`;
}

/** A share in percent; what is not nothing and not all does not look like it. */
export function percent(share: number): string {
  if (share < 0) return `−${percent(-share)}`;
  if (share > 0 && share < 0.001) return "<0.1 %";
  const value = share > 0.999 && share < 1 ? 99.9 : share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : value > 99 && value < 100 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** An amount with the digits that small ones need: "0.00042 USD", "12.30 USD". */
export function money(amount: number | null, currency: string | null): string {
  if (amount === null) return "–";
  const size = Math.abs(amount);
  const digits = size === 0 || size >= 1 ? 2 : Math.min(2 - Math.floor(Math.log10(size)), 8);
  const text = size.toFixed(digits).replace(/^\d+/, (whole) => grouped(Number(whole)));
  return `${amount < 0 ? "−" : ""}${text}${currency === null ? "" : ` ${currency}`}`;
}
