// What has happened, in order: servers that came and went, agreement lost and found, migrations.
//
// Of the time before the page was opened only what objects still tell is known: when leases were
// made, Events, and the times of conditions. No elements here.

import { displayName, listed, plural, shortVersion } from "./format.js";

const ENTRIES_MAX = 500;
// What happens to many resources at once is one thing to tell.
const TOGETHER_MS = 3_000;
const EVENT_NAME = /^(.*)\.epoch-(\d+)$/;

export const serverName = (server) => server.address || server.host || server.id;

export class Timeline {
  constructor() {
    this.entries = [];
    this.keys = new Set();
    // From when to when each server lived, also those that are gone.
    this.lives = new Map();
    // When each epoch of the agreement on a resource began, as far as is known.
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
    this.lives.set(server.id, { server, from: at, to: null });
    const release = server.release ? `, release ${server.release},` : "";
    this.add(`joined ${server.id}`, { at, kind: "joined", text: `${serverName(server)}${release} joined` });
  }

  left(server, now) {
    const life = this.lives.get(server.id);
    if (life) life.to = +now;
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

  // Events tell whole seconds only. What came first, the epochs tell.
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

  // The server's own record, also of what happened before the page was opened.
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

  // `now` if it is seen as it happens, otherwise null: then its own times have to do.
  migration(migration, now) {
    const { uid, key, phase, created, started, ended, reason } = migration;
    const tell = (kind, at, how) =>
      this.add(`migration ${uid} ${kind}`, { at: now ?? at, kind, resource: key, how });
    tell("asked", created, "migration asked for");
    if (started !== null) tell("running", started, "migration runs");
    if (phase === "succeeded") tell("succeeded", ended, "migration done");
    if (phase === "failed") tell("failed", ended, `migration failed: ${reason || "no reason given"}`);
  }

  // Newest first; what was alike and at the same time is one.
  told(most) {
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

  // How many resources the servers wrote differently, from each moment on.
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
