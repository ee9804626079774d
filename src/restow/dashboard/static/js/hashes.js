// Resolves storage version hashes to the names of versions.
//
// The hash is computed from group, version and kind, so all versions that servers decode are tried.
// Discovery has the kind of a resource. A hash that matches none is shown as it is.

const DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const HASH_BYTES = 8;

export class HashNames {
  constructor() {
    this.names = new Map();
    this.kinds = new Map();
    this.tried = new Set();
  }

  // The version of a hash, such as "v1", or null.
  nameOf(hash) {
    return this.names.get(hash) ?? null;
  }

  // Read the kinds of all resources; a resource has the same kind in all versions.
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

  // Compute the hashes of the versions of a resource; whether there was a new one.
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
