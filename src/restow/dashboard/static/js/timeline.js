// The history in order: servers that joined and left, changes of agreement, migrations.
//
// The time before the page was opened is covered only as far as objects show it: creation of leases,
// Events, and times of conditions. No elements here.

import { displayName, listed, plural, shortVersion } from "./format.js";

const ENTRIES_MAX = 500;
// The same change of many resources within this time is one entry.
const TOGETHER_MS = 3_000;
const EVENT_NAME = /^(.*)\.epoch-(\d+)$/;

export const serverName = (server) => server.address || server.host || server.id;

export class Timeline {
  constructor() {
    this.entries = [];
    this.keys = new Set();
    // The time range of each server, including those that have left.
    this.lifetimes = new Map();
    // The known start of each epoch of the agreement on a resource.
    this.epochs = new Map();
    this.changed = true;
  }

  add(key, entry) {
    if (this.keys.has(key) || !Number.isFinite(entry.at)) return;
    this.keys.add(key);
    this.entries.push(entry);
    this.entries.sort((one, two) => one.at - two.at);
    if (this.entries.length > ENTRIES_MAX) this.entries.shift();
    this.changed = true;
  }

  joined(server, at) {
    this.lifetimes.set(server.id, { server, from: at, to: null });
    const release = server.release ? `, release ${server.release},` : "";
    this.add(`joined ${server.id}`, { at, kind: "joined", text: `${serverName(server)}${release} joined` });
  }

  left(server, now) {
    const lifetime = this.lifetimes.get(server.id);
    if (lifetime) lifetime.to = +now;
    const release = server.release ? `, release ${server.release},` : "";
    this.add(`left ${server.id}`, { at: +now, kind: "left", text: `${serverName(server)}${release} left` });
  }

  agreement(resource, now) {
    if (resource.entries.size === 0) return;
    const version = resource.common ? shortVersion(resource.common) : "";
    const found = [...resource.entries.values()].map(({ encoding }) => shortVersion(encoding));
    this.agreed(resource.key, resource.epoch, version, [...new Set(found)].sort(), +now);
  }

  agreed(key, epoch, version, versions, seen) {
    const at = this.inOrder(key, Number(epoch), seen);
    const how = version ? `all servers write ${version}` : `servers write ${versions.join(" and ")}`;
    this.add(`agreement ${key} ${epoch}`, { at, kind: version ? "agreed" : "differs", resource: key, how });
  }

  // Events have a resolution of one second. Epochs determine the order.
  inOrder(key, epoch, seen) {
    const known = this.epochs.get(key) ?? new Map();
    this.epochs.set(key, known);
    if (known.has(epoch) || !Number.isFinite(seen)) return known.get(epoch) ?? seen;
    let at = seen;
    for (const [other, moment] of known) {
      if (other < epoch) at = Math.max(at, moment + 1);
    }
    for (const [other, moment] of known) {
      if (other > epoch) at = Math.min(at, moment - 1);
    }
    known.set(epoch, at);
    return at;
  }

  // Events of servers, which also cover the time before the page was opened.
  takeEvent(event) {
    const [, key, epoch] = EVENT_NAME.exec(event.metadata.name) ?? [];
    if (!key || event.involvedObject?.kind !== "StorageVersion") return;
    const at = Date.parse(event.lastTimestamp ?? event.firstTimestamp ?? event.metadata.creationTimestamp);
    const versions = /in (.*)$/.exec(event.message ?? "")?.[1].split(", ").map(shortVersion) ?? [];
    const isAgreed = event.reason === "StorageVersionAgreed";
    this.agreed(key, epoch, isAgreed ? versions[0] ?? "" : "", versions, at);
  }

  persisted(resource, before, nameOf, now) {
    const added = resource.persisted.filter((hash) => !before.includes(hash)).map(nameOf);
    const removed = before.filter((hash) => !resource.persisted.includes(hash)).map(nameOf);
    const key = `persisted ${resource.key} ${resource.persisted.join()} ${+now}`;
    if (added.length) {
      this.add(key, { at: +now, kind: "grown", resource: resource.key, how: `${added.join(", ")} may now be stored` });
    } else if (removed.length) {
      const left = resource.persisted.map(nameOf).join(", ");
      this.add(key, { at: +now, kind: "narrowed", resource: resource.key, how: `only ${left} is stored` });
    }
  }

  // `now` for a live change, otherwise null: then the times in the object are used.
  migration(migration, now) {
    const { uid, key, phase, created, started, ended, reason } = migration;
    const note = (kind, at, how) =>
      this.add(`migration ${uid} ${kind}`, { at: now ?? at, kind, resource: key, how });
    note("created", created, "migration created");
    if (started !== null) note("running", started, "migration started");
    if (phase === "succeeded") note("succeeded", ended, "migration succeeded");
    if (phase === "failed") note("failed", ended, `migration failed: ${reason || "no reason given"}`);
  }

  // Newest first; equal entries at the same time are merged.
  recent(most) {
    const found = [];
    for (let index = this.entries.length - 1; index >= 0 && found.length < most; index -= 1) {
      const entry = this.entries[index];
      const last = found.at(-1);
      const isAlike = last?.kind === entry.kind && last.how === entry.how && entry.resource;
      if (isAlike && last.from - entry.at <= TOGETHER_MS) {
        last.resources.push(entry.resource);
        last.from = entry.at;
      } else {
        const resources = entry.resource ? [entry.resource] : [];
        found.push({ ...entry, resources, from: entry.at });
      }
    }
    return found.map((entry) => ({ ...entry, text: textOf(entry) }));
  }

  // The number of resources on which servers differ, over time.
  differing() {
    const steps = [];
    const open = new Set();
    for (const { at, kind, resource } of this.entries) {
      if (kind === "differs") open.add(resource);
      else if (kind === "agreed") open.delete(resource);
      else continue;
      steps.push({ at, count: open.size });
    }
    return steps;
  }
}

function textOf({ text, resources, how }) {
  if (text) return text;
  if (resources.length === 1) return `${displayName(resources[0])}: ${how}`;
  return `${plural(resources.length, "resource")}: ${how} (${listed(resources.map(displayName))})`;
}
