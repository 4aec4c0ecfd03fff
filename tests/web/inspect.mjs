// How a page looks and reads: accessibility rules (contrast, names, roles), no sideways scrolling, and a picture for
// people to judge.
//   KVIST_SCREENSHOTS  folder for pictures; none are taken without it

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const kPictures = process.env.KVIST_SCREENSHOTS;
const kAxe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
if (kPictures) mkdirSync(kPictures, { recursive: true });

/** Checks the rules on what the page shows now, and takes its picture. */
export async function inspect(page, name, options = {}) {
  // Shapes settle within the transition of the message controls.
  await page.waitForTimeout(200);
  if (kPictures) await page.screenshot({ path: join(kPictures, `${name}.png`), ...options });
  const sideways = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  assert.equal(sideways, 0, "the page scrolls sideways");
  await page.evaluate(kAxe);
  const { violations } = await page.evaluate(() =>
    axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
      rules: { "heading-order": { enabled: false } }, // The outline inside an answer is the model's.
    }),
  );
  assert.deepEqual(
    violations.map((v) => `${v.id}: ${v.nodes.map((node) => node.target + " " + node.failureSummary).join("; ")}`),
    [],
  );
}
