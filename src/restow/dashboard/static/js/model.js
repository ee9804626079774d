// The state of the cluster, read from objects of the API. No elements here.
//
// No field of an object is assumed to have the right type: the status of a migration is written by
// its migrator.

import { resourceKey, shortVersion, splitKey } from "./format.js";
import { IDENTITY, canRead, keyLabels } from "./keys.js";
import { Timeline } from "./timeline.js";

const OWN = "coordination.restow.dev/";
const SAMPLES_MAX = 60;
const UNKNOWN = "Unknown";
const KEYS_EQUAL = "AllEncryptionKeysEqual";
// All servers write with one key, and some wait for another: that is not a disagreement.
const KEY_PENDING = "EncryptionKeyPending";

export class Model {
  constructor(hashes) {
    this.hashes = hashes;
    this.servers = new Map();
    this.resources = new Map();
    this.migrations = new Map();
    this.timeline = new Timeline();
    this.isSynced = false;
    // Keys of the resources to render again.
    this.changed = new Set();
    this.serversChanged = true;
  }

  take(channel, type, object, before) {
    const isGone = type === "DELETED";
    switch (channel.name) {
      case "leases":
        return this.takeLease(object, isGone);
      case "reports":
        return this.takeReport(object, isGone, before);
      case "states":
        return this.takeState(object, isGone, before);
      case "events":
        return isGone ? undefined : this.timeline.takeEvent(object);
      default:
        return this.takeMigration(object, isGone);
    }
  }

  // --- servers ---

  takeLease(lease, isGone) {
    const id = lease.metadata.name;
    const known = this.servers.get(id);
    this.serversChanged = true;
    if (isGone) {
      if (known) this.timeline.left(known, new Date());
      this.servers.delete(id);
      return;
    }
    const server = known ?? { id, samples: [], created: dateOf(lease.metadata.creationTimestamp) };
    const notes = lease.metadata.annotations ?? {};
    server.address = textOf(notes[`${OWN}address`]);
    server.release = textOf(notes[`${OWN}release`]);
    server.mode = textOf(notes[`${OWN}member`]);
    server.host = textOf(lease.metadata.labels?.["kubernetes.io/hostname"]);
    server.leaseSeconds = numberOf(lease.spec?.leaseDurationSeconds) ?? 15;
    const renewed = dateOf(lease.spec?.renewTime);
    // Measured by the clock of this page, since the clocks of machines differ; for leases from
    // before the page was opened, the renewTime of the server is used.
    const age = known ? 0 : Math.max(0, Date.now() - (renewed ?? Date.now()));
    server.renewedAt = performance.now() - age;
    this.takeFigures(server, notes[`${OWN}figures`], renewed);
    this.servers.set(id, server);
    // Live changes get times of the clock of the page, so that they are in order.
    if (!known) this.timeline.joined(server, this.isSynced ? Date.now() : server.created ?? Date.now());
  }

  takeFigures(server, text, at) {
    const figures = parse(text);
    const requests = numberOf(figures?.requests);
    if (requests === null || at === null) return;
    const { last } = server;
    const seconds = last ? (at - last.at) / 1000 : 0;
    server.last = { at, requests, seconds: numberOf(figures.seconds) ?? 0 };
    if (seconds <= 0 || requests < last.requests) return;
    server.samples.push({
      perSecond: (requests - last.requests) / seconds,
      p99: numberOf(figures.p99Seconds),
    });
    if (server.samples.length > SAMPLES_MAX) server.samples.shift();
  }

  // Servers in a stable order: by address, so that an upgraded one replaces the previous one.
  serverList() {
    const found = [...this.servers.values()];
    const known = new Set(found.map((server) => server.id));
    for (const resource of this.resources.values()) {
      for (const id of resource.entries.keys()) {
        if (known.has(id)) continue;
        known.add(id);
        found.push({ id, samples: [], address: "", release: "", host: "", created: null, lacksLease: true });
      }
    }
    const place = (server) => server.address || `~${server.id}`;
    return found.sort(
      (one, two) =>
        place(one).localeCompare(place(two), "en", { numeric: true }) ||
        (one.created ?? 0) - (two.created ?? 0),
    );
  }

  // --- resources ---

  resource(key) {
    let found = this.resources.get(key);
    if (found === undefined) {
      const { group, resource } = splitKey(key);
      found = {
        key, group, resource,
        entries: new Map(), common: "", conditions: [], epoch: "",
        persisted: [], keys: [IDENTITY], current: "", hasReport: false, hasState: false, touched: 0,
      };
      this.resources.set(key, found);
    }
    this.changed.add(key);
    if (this.isSynced) found.touched = Date.now();
    return found;
  }

  drop(resource) {
    if (!resource.hasReport && !resource.hasState) this.resources.delete(resource.key);
  }

  takeReport(report, isGone, before) {
    const resource = this.resource(report.metadata.name);
    const idsBefore = [...resource.entries.keys()].join();
    resource.entries = new Map();
    resource.hasReport = !isGone;
    if (isGone) {
      this.serversChanged = true;
      return this.drop(resource);
    }
    const status = report.status ?? {};
    const reported = (name) => parse(report.metadata.annotations?.[`${OWN}${name}`]) ?? {};
    const [keys, preferred] = [reported("encryption-keys"), reported("preferred-encryption-keys")];
    const readable = reported("readable-encryption-keys");
    for (const entry of objectsOf(status.storageVersions)) {
      const id = textOf(entry.apiServerID);
      resource.entries.set(id, {
        key: textOf(keys[id]) || IDENTITY,
        preferredKey: textOf(preferred[id]),
        readableKeys: readable[id] === undefined ? [IDENTITY] : listOf(readable[id]).map(textOf),
        encoding: textOf(entry.encodingVersion),
        decodable: listOf(entry.decodableVersions).map(textOf),
        served: listOf(entry.servedVersions).map(textOf),
      });
    }
    resource.common = textOf(status.commonEncodingVersion);
    resource.conditions = objectsOf(status.conditions);
    const epoch = textOf(report.metadata.annotations?.[`${OWN}epoch`]);
    const isNews = this.isSynced && before !== undefined && epoch !== resource.epoch;
    resource.epoch = epoch;
    if (isNews) this.timeline.agreement(resource, new Date());
    if (idsBefore !== [...resource.entries.keys()].join()) this.serversChanged = true;
    return undefined;
  }

  takeState(state, isGone, before) {
    const wanted = state.spec?.resource ?? {};
    const resource = this.resource(resourceKey(textOf(wanted.group), textOf(wanted.resource)));
    resource.hasState = !isGone;
    const hashesBefore = resource.persisted;
    resource.persisted = isGone ? [] : persistedHashes(state.status?.persistedStorageVersionHashes);
    const keys = isGone ? [] : listOf(state.status?.persistedEncryptionKeys).map(textOf);
    resource.keys = keys.length ? keys : [IDENTITY];
    resource.current = isGone ? "" : textOf(state.status?.currentStorageVersionHash);
    if (this.isSynced && before !== undefined && !isGone) {
      this.timeline.persisted(resource, hashesBefore, (hash) => this.stored(resource, hash).name, new Date());
    }
    if (isGone) this.drop(resource);
  }

  // One of the persisted hashes: its version name, and its meaning.
  stored(resource, hash) {
    if (hash === UNKNOWN) return { hash, name: "unknown", meaning: "unknown" };
    const name = this.hashes.nameOf(hash);
    // Current versions are those of the servers; for a hash without a name, that of the StorageState.
    const written = [...resource.entries.values()].map(({ encoding }) => shortVersion(encoding));
    const isCurrent = name !== null && written.length ? written.includes(name) : hash === resource.current;
    return { hash, name: name ?? hash, meaning: isCurrent ? "current" : "old" };
  }

  // Whether any resource is encrypted; if not, keys are not shown.
  get isEncrypted() {
    return [...this.resources.values()].some((resource) => keysOf(resource) !== null);
  }

  // The labels of keys on the page.
  keyLabels() {
    return keyLabels([...this.resources.values()].flatMap((resource) => keysOf(resource)?.all ?? []));
  }

  // All versions that any server reports, to resolve hashes.
  versionsOf(resource) {
    const found = new Set();
    for (const { encoding, decodable, served } of resource.entries.values()) {
      for (const version of [encoding, ...decodable, ...served]) found.add(shortVersion(version));
    }
    found.delete("");
    return found;
  }

  // --- migrations ---

  takeMigration(object, isGone) {
    const { uid } = object.metadata;
    const before = this.migrations.get(uid);
    if (before) this.changed.add(before.key);
    if (isGone) {
      this.migrations.delete(uid);
      return;
    }
    const migration = readMigration(object);
    // Some migrators update this time with each status.
    migration.started = before?.started ?? migration.started;
    this.migrations.set(uid, migration);
    this.changed.add(migration.key);
    this.timeline.migration(migration, this.isSynced ? Date.now() : null);
  }

  // The most relevant migration of a resource: the active one, else the newest.
  migrationOf(key) {
    let found = null;
    for (const migration of this.migrations.values()) {
      if (migration.key !== key) continue;
      if (found === null || rank(migration) > rank(found)) found = migration;
    }
    return found;
  }
}

const rank = (migration) =>
  (migration.isActive ? 1e15 : 0) + (migration.ended ?? migration.created ?? 0);

export function readMigration(object) {
  const wanted = object.spec?.resource ?? {};
  const status = object.status ?? {};
  const progress = status.progress ?? positionOf(object);
  const condition = (type) =>
    objectsOf(status.conditions).find((each) => each.type === type && each.status === "True");
  const failed = condition("Failed");
  const succeeded = condition("Succeeded");
  const running = condition("Running");
  const end = failed ?? succeeded;
  const isPaused = object.metadata.annotations?.["migrator.restow.dev/paused"] === "true";
  const phase = failed ? "failed" : succeeded ? "succeeded" : isPaused ? "paused" : running ? "running" : "pending";
  const scanned = numberOf(progress.scanned) ?? 0;
  const remaining = numberOf(progress.remaining);
  return {
    uid: object.metadata.uid,
    name: object.metadata.name,
    api: object.apiVersion,
    key: resourceKey(textOf(wanted.group), textOf(wanted.resource)),
    created: dateOf(object.metadata.creationTimestamp),
    phase,
    isActive: !end,
    started: dateOf(running?.lastTransitionTime ?? running?.lastUpdateTime),
    ended: end ? dateOf(end.lastTransitionTime ?? end.lastUpdateTime) : null,
    reason: textOf((end ?? running)?.reason),
    message: textOf((end ?? running)?.message),
    pass: numberOf(progress.pass),
    scanned,
    rewritten: numberOf(progress.rewritten) ?? 0,
    unchanged: numberOf(progress.unchanged) ?? 0,
    failedCount: numberOf(progress.failed) ?? objectsOf(status.failedObjects).length,
    remaining,
    share: end && succeeded ? 1 : remaining === null ? null : share(scanned, remaining),
    perSecond: numberOf(progress.objectsPerSecond),
    secondsLeft: numberOf(progress.secondsLeft),
    failures: objectsOf(status.failedObjects).map((each) => ({
      name: [textOf(each.namespace), textOf(each.name)].filter(Boolean).join("/"),
      reason: textOf(each.reason),
      message: textOf(each.message),
    })),
  };
}

// The in-tree API has no field for progress; there the checkpoint of the migrator is used.
function positionOf(object) {
  const found = parse(object.metadata.annotations?.["migrator.restow.dev/position"]) ?? {};
  const [total, scanned] = [numberOf(found.objects), numberOf(found.scanned)];
  const rewritten = (numberOf(found.rewritten) ?? 0) + (numberOf(found.rewrittenBefore) ?? 0);
  const remaining = total === null || scanned === null ? null : Math.max(total - scanned, 0);
  return { ...found, rewritten, remaining };
}

const share = (done, left) => (done + left > 0 ? done / (done + left) : 1);

// --- assessment ---

// Whether a resource needs attention, and why. Pure, so that it can be tested separately.
export function assess(model, resource) {
  const encodings = new Map();
  for (const [id, { encoding }] of resource.entries) {
    const version = shortVersion(encoding);
    encodings.set(version, [...(encodings.get(version) ?? []), id]);
  }
  const refusals = resource.conditions.filter((each) => each.status === "False" && each.reason !== KEY_PENDING);
  const refusal = refusals.find((each) => each.type !== KEYS_EQUAL) ?? refusals[0];
  const differs = encodings.size > 1 || (resource.entries.size > 0 && !resource.common);
  const keys = keysOf(resource);
  const keysDiffer = refusal?.type === KEYS_EQUAL || Boolean(keys?.differ);
  const stored = resource.persisted.map((hash) => model.stored(resource, hash));
  const isStale = stored.some((each) => each.meaning === "old") || Boolean(keys?.old.length);
  const isUnsure = stored.some((each) => each.meaning === "unknown");
  const migration = model.migrationOf(resource.key);
  const attention =
    (migration?.phase === "failed" ? 16 : 0) +
    (differs || keysDiffer ? 8 : 0) +
    (migration?.isActive ? 4 : 0) +
    (isStale || keys?.waiting.length ? 2 : 0);
  return { encodings, differs, keysDiffer, keys, refusal, stored, isStale, isUnsure, migration, attention };
}

// The encryption keys of a resource: keys that servers write with, keys that servers wait for, the
// servers that cannot read those, and keys under which objects may be stored. null if unencrypted.
export function keysOf(resource) {
  const entries = [...resource.entries];
  const written = new Map();
  for (const [id, { key }] of entries) written.set(key, [...(written.get(key) ?? []), id]);
  const waiting = entries.filter(([, each]) => each.preferredKey).map(([id, each]) => ({ id, key: each.preferredKey }));
  const known = entries.flatMap(([, each]) => each.readableKeys);
  const all = new Set([...written.keys(), ...waiting.map(({ key }) => key), ...resource.keys]);
  if (![...all, ...known].some((key) => key !== IDENTITY)) return null;
  const wanted = [...new Set(waiting.map(({ key }) => key))];
  const lacking = wanted.flatMap((key) =>
    entries.filter(([, each]) => !canRead(each.readableKeys, key)).map(([id]) => ({ id, key })),
  );
  const agreed = written.size === 1 ? [...written.keys()][0] : "";
  // If a version is unknown, keys are unknown, too.
  const isUnsure = resource.persisted.includes(UNKNOWN);
  const old = agreed && !isUnsure ? resource.keys.filter((key) => key !== agreed) : [];
  return { all: [...all], written, agreed, differ: written.size > 1, waiting, lacking, old };
}

// --- tolerant readers ---

// An empty or missing list means that objects may be stored in any version.
function persistedHashes(listed) {
  const hashes = listOf(listed).map((each) => textOf(each) || UNKNOWN);
  return hashes.length ? hashes : [UNKNOWN];
}

export const textOf = (value) => (typeof value === "string" ? value : "");
export const listOf = (value) => (Array.isArray(value) ? value : []);
// Elements that are not objects are left out.
export const objectsOf = (value) => listOf(value).filter((each) => each !== null && typeof each === "object");
export const numberOf = (value) => (Number.isFinite(value) ? value : null);

export function dateOf(value) {
  const found = typeof value === "string" ? Date.parse(value) : NaN;
  return Number.isNaN(found) ? null : found;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
