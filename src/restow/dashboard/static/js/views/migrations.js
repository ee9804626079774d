// Migrations of both migration APIs: progress, rate, time remaining and failures.

import { byId, element, keyed, set, setText } from "../dom.js";
import { clock, displayName, duration, rate, splitKey } from "../format.js";

const FAILURES_SHOWN_MAX = 50;

export function drawMigrations(model) {
  const found = [...model.migrations.values()].sort(
    (one, two) => two.isActive - one.isActive || (two.created ?? 0) - (one.created ?? 0),
  );
  set(byId("migrations-empty"), "hidden", found.length > 0);
  const table = byId("migrations-table");
  set(table, "hidden", found.length === 0);
  keyed(table.tBodies[0], found, { key: (migration) => migration.uid, make, update });
}

function make() {
  const cell = (label, ...children) => element("td", { "data-label": label }, ...children);
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, element("span"), " ", element("small", { class: "muted" })),
    cell("State", element("span", { class: "badge" }), element("p", { class: "muted reason" })),
    cell("Progress", element("progress", { max: "1" }), element("p", { class: "muted counts" })),
    element("td", { class: "number", "data-label": "Rate" }),
    element("td", { class: "number", "data-label": "Time remaining" }),
    cell("Failed", element("span"), element("details", { hidden: true }, element("summary"), element("ul", { class: "failures" }))),
    cell("Name", element("span", { class: "muted object-name" })),
  );
}

function update(row, migration) {
  const [resourceCell, state, progress, perSecond, remaining, failed, name] = row.cells;
  set(row, "data-phase", migration.phase);
  const { group, resource } = splitKey(migration.key);
  setText(resourceCell.firstChild, resource);
  setText(resourceCell.lastChild, group || "core");
  setText(state.firstChild, migration.phase);
  setText(state.lastChild, [migration.reason, migration.message].filter(Boolean).join(": "));
  drawProgress(progress, migration);
  setText(perSecond, migration.isActive && migration.perSecond !== null ? `${rate(migration.perSecond)}/s` : "–");
  setText(remaining, timeRemaining(migration));
  drawFailures(failed, migration);
  setText(name.firstChild, `${migration.name} (${migration.api})`);
}

function drawProgress(cell, migration) {
  const bar = cell.firstChild;
  set(bar, "value", migration.share === null ? (migration.phase === "running" ? null : 0) : migration.share.toFixed(4));
  const percent = migration.share === null ? "" : `${Math.floor(migration.share * 100)} %, `;
  set(bar, "aria-label", `${percent}${displayName(migration.key)}`);
  const total = migration.remaining === null ? "" : ` of ${(migration.scanned + migration.remaining).toLocaleString("en")}`;
  const pass = migration.pass > 1 ? "verifying, " : "";
  setText(
    cell.lastChild,
    migration.scanned || migration.remaining !== null
      ? `${percent}${pass}${migration.scanned.toLocaleString("en")}${total} scanned, ${migration.rewritten.toLocaleString("en")} rewritten`
      : "",
  );
}

function timeRemaining(migration) {
  if (migration.phase === "running" && migration.secondsLeft !== null) return duration(migration.secondsLeft);
  if (migration.ended !== null) return clock(new Date(migration.ended));
  return "–";
}

function drawFailures(cell, { failedCount, failures }) {
  const [count, details] = cell.children;
  set(cell, "data-failed", failedCount > 0);
  set(details, "hidden", failures.length === 0);
  set(count, "hidden", failures.length > 0);
  setText(count, String(failedCount));
  setText(details.firstChild, String(failedCount));
  const shown = failures.slice(0, FAILURES_SHOWN_MAX).map((each, index) => ({ ...each, index }));
  keyed(details.lastChild, shown, {
    key: ({ index }) => index,
    make: () => element("li"),
    update: (node, { name, reason, message }) => setText(node, `${name}: ${reason}${message ? `, ${message}` : ""}`),
  });
}
