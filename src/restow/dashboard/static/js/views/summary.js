// One sentence with the most important state, and four figures.

import { byId, element, keyed, set, setText } from "../dom.js";
import { displayName, duration, listed, plural } from "../format.js";
import { assess } from "../model.js";
import { serverName } from "../timeline.js";

export function drawSummary(model) {
  const sums = sumUp(model);
  const [level, text] = verdict(model, sums);
  const node = byId("verdict");
  set(node, "data-level", level);
  setText(node, text);
  document.title = level === "calm" ? "restow" : `restow – ${text}`;
  keyed(byId("tiles"), tiles(model, sums), {
    key: (tile) => tile.name,
    make: (tile) =>
      element("div", { class: "tile" }, element("dt", {}, tile.name), element("dd"), element("dd", { class: "muted" })),
    update: (found, tile) => {
      set(found, "data-level", tile.level);
      setText(found.children[1], tile.value);
      setText(found.children[2], tile.detail);
    },
  });
}

function sumUp(model) {
  const sums = { differing: [], waiting: [], stale: [], unsure: [], active: [], failed: [], total: model.resources.size };
  for (const resource of model.resources.values()) {
    const found = assess(model, resource);
    if (found.differs || found.keysDiffer) sums.differing.push(resource);
    if (found.keys?.lacking.length) sums.waiting.push(...found.keys.lacking);
    if (found.isStale) sums.stale.push(resource);
    else if (found.isUnsure) sums.unsure.push(resource);
    if (found.migration?.phase === "failed") sums.failed.push(found.migration);
  }
  sums.active = [...model.migrations.values()].filter((each) => each.isActive);
  return sums;
}

function verdict(model, { differing, waiting, stale, active, failed, total }) {
  const names = (found) => listed(found.map((each) => displayName(each.key)));
  if (differing.length === 1) return ["differs", `Servers differ on ${difference(model, differing[0])}.`];
  if (differing.length > 1) return ["differs", `Servers differ on ${plural(differing.length, "resource")}: ${names(differing)}.`];
  if (failed.length) return ["failed", `${plural(failed.length, "migration")} failed: ${names(failed)}.`];
  if (active.length) return ["active", `All servers agree. ${plural(active.length, "migration")} running: ${names(active)}.`];
  if (waiting.length) return ["left", `All servers agree. ${lackingText(model, waiting)}.`];
  if (stale.length) return ["left", `All servers agree. ${plural(stale.length, "resource")} may still be stored ${how(model, stale)}: ${names(stale)}.`];
  return ["calm", `All servers agree on all ${plural(total, "resource")}.`];
}

// "widgets.example.com: v1 by 127.0.0.1:6443, v2 by 127.0.0.1:6444"
function difference(model, resource) {
  const { encodings, refusal, keys } = assess(model, resource);
  const name = displayName(resource.key);
  if (encodings.size < 2 && keys?.differ) return `${name}: ${writtenText(model, keys.written)}`;
  if (encodings.size < 2) return `${name}: ${refusal?.message || "no common version"}`;
  const nameOf = (id) => serverName(model.servers.get(id) ?? { id });
  const parts = [...encodings].sort().map(([version, ids]) => `${version} by ${listed(ids.map(nameOf).sort())}`);
  return `${name}: ${parts.join(", ")}`;
}

// "key aesgcm:key1 by 127.0.0.1:6443, key aesgcm:key2 by 127.0.0.1:6444"
function writtenText(model, written) {
  const [label, nameOf] = [model.keyLabels(), (id) => serverName(model.servers.get(id) ?? { id })];
  return [...written].sort().map(([key, ids]) => `key ${label(key)} by ${listed(ids.map(nameOf).sort())}`).join(", ");
}

// "The encryption key aesgcm:key2 is pending: 127.0.0.1:6444 cannot read it"
function lackingText(model, lacking) {
  const [label, nameOf] = [model.keyLabels(), (id) => serverName(model.servers.get(id) ?? { id })];
  const keys = [...new Set(lacking.map(({ key }) => label(key)))].sort();
  const servers = [...new Set(lacking.map(({ id }) => nameOf(id)))].sort();
  return `The encryption key ${keys.join(", ")} ${keys.length > 1 ? "are" : "is"} pending: ${listed(servers)} cannot read it`;
}

function how(model, stale) {
  const isKeyOnly = stale.every((resource) => assess(model, resource).stored.every(({ meaning }) => meaning !== "old"));
  return isKeyOnly ? "under an older key" : "in an older version";
}

function tiles(model, { differing, stale, unsure, active, failed, total }) {
  const releases = [...new Set([...model.servers.values()].map((each) => each.release).filter(Boolean))].sort();
  const slowest = Math.max(0, ...active.map((each) => each.secondsLeft ?? 0));
  return [
    {
      name: "Servers",
      value: String(model.servers.size),
      detail: releases.length ? `release ${releases.join(" and ")}` : "",
      level: releases.length > 1 ? "active" : "calm",
    },
    {
      name: "Agreement",
      value: `${total - differing.length} of ${total}`,
      detail: differing.length ? plural(differing.length, "differs", "differ") : "resources in agreement",
      level: differing.length ? "differs" : "calm",
    },
    {
      name: "To migrate",
      value: String(stale.length),
      detail: `with older versions${model.isEncrypted ? " or keys" : ""}${unsure.length ? `, ${unsure.length} not checked yet` : ""}`,
      level: stale.length ? "left" : "calm",
    },
    {
      name: "Migrations",
      value: String(active.length),
      detail: failed.length
        ? `${failed.length} failed`
        : slowest
          ? `running, ${duration(slowest)} remaining`
          : "running",
      level: failed.length ? "failed" : active.length ? "active" : "calm",
    },
  ];
}
