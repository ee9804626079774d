// How encryption keys are called, and who can read what: as restow/apis/encryption_keys.py. Pure.

export const IDENTITY = "identity";
const ANY = ":*";

// "aesgcm:key1:6f1d" is "aesgcm:key1", if that tells it from all others; a key of a plug-in stays.
export function keyLabels(ids) {
  const short = (id) => (id.startsWith("kms:") ? id : id.split(":").slice(0, 2).join(":"));
  const counts = new Map();
  for (const id of new Set(ids)) counts.set(short(id), (counts.get(short(id)) ?? 0) + 1);
  return (id) => (counts.get(short(id)) > 1 ? id : short(id));
}

// Whether a server that can read these keys can read what is written under that one.
export const canRead = (readable, key) =>
  readable.some((each) => each === key || (each.endsWith(ANY) && key.startsWith(each.slice(0, -1))));
