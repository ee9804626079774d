// Formats numbers, times and names. Pure.

const CORE = "core";

export const plural = (count, one, many = `${one}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

// A duration in its two largest units: 45 s, 3 min 20 s, 2 h 5 min.
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return joined(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86400) return joined(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return joined(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

const joined = (large, unit, small, smallUnit) =>
  small ? `${large} ${unit} ${small} ${smallUnit}` : `${large} ${unit}`;

export const clock = (date) =>
  date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function rate(perSecond) {
  if (!Number.isFinite(perSecond)) return "–";
  if (perSecond >= 100) return Math.round(perSecond).toLocaleString("en");
  return perSecond >= 10 ? perSecond.toFixed(0) : perSecond.toFixed(1);
}

export function milliseconds(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const value = seconds * 1000;
  return value >= 10 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
}

// "example.com/v1" becomes "v1": the group is shown once, in the name of the resource.
export const shortVersion = (apiVersion) => apiVersion.slice(apiVersion.lastIndexOf("/") + 1);

// The key of a resource: the name of its StorageVersion.
export const resourceKey = (group, resource) => `${group || CORE}.${resource}`;

// "example.com.widgets" is the resource widgets of the group example.com.
export function splitKey(key) {
  const dot = key.lastIndexOf(".");
  const group = key.slice(0, dot);
  return { group: group === CORE ? "" : group, resource: key.slice(dot + 1) };
}

// The name that kubectl accepts: widgets.example.com, configmaps.
export function displayName(key) {
  const { group, resource } = splitKey(key);
  return group ? `${resource}.${group}` : resource;
}

// The first few names, and the number of the others.
export function listed(names, most = 3) {
  if (names.length <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
}
