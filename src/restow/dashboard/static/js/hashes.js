// From a hash of a stored version to the version's name.
//
// The hash is of group, version and kind, so each version that any server decodes can be tried. The
// kind of a resource is in discovery. A hash that nothing fits stays what it is.

const DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const HASH_BYTES = 8;

export class HashNames {
  constructor() {
    this.names = new Map();
    this.kinds = new Map();
    this.tried = new Set();
  }

  // "v1" for a hash that is known, otherwise null.
  nameOf(hash) {
    return this.names.get(hash) ?? null;
  }

  // Learn the kinds of all resources; a resource has one, whatever the version.
  async discover() {
    for (const root of ["/api", "/apis"]) {
      const answer = await fetch(root, { headers: { Accept: DISCOVERY } });
      if (!answer.ok) continue;
      for (const group of (await answer.json()).items ?? []) {
        for (const { resources } of group.versions ?? []) {
          for (const { resource, responseKind } of resources ?? []) {
            this.kinds.set(`${group.metadata.name ?? ""}/${resource}`, responseKind?.kind);
          }
        }
      }
    }
  }

  // Try the versions of a resource; whether any name was learnt.
  async learn(group, resource, versions) {
    const kind = this.kinds.get(`${group}/${resource}`);
    if (!kind) return false;
    let learnt = false;
    for (const version of versions) {
      const text = `${group}/${version}/${kind}`;
      if (this.tried.has(text)) continue;
      this.tried.add(text);
      this.names.set(await hashOf(text), version);
      learnt = true;
    }
    return learnt;
  }
}

export async function hashOf(text) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return btoa(String.fromCharCode(...new Uint8Array(digest).slice(0, HASH_BYTES)));
}
