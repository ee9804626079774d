// Labels of encryption keys, and readability: as in restow/apis/encryption_keys.py. Pure.

export const IDENTITY = "identity";
const ANY = ":*";

// "aesgcm:key1:6f1d" becomes "aesgcm:key1" if that is unique; keys of KMS plug-ins are not shortened.
export function keyLabels(ids) {
  const short = (id) => (id.startsWith("kms:") ? id : id.split(":").slice(0, 2).join(":"));
  const counts = new Map();
  for (const id of new Set(ids)) counts.set(short(id), (counts.get(short(id)) ?? 0) + 1);
  return (id) => (counts.get(short(id)) > 1 ? id : short(id));
}

// Whether a server that can read these keys can read objects encrypted with that one.
export const canRead = (readable, key) =>
  readable.some((each) => each === key || (each.endsWith(ANY) && key.startsWith(each.slice(0, -1))));
