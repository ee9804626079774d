// The timeline: a lane for each server address, one for agreement, one for migrations; and the same
// as text, which screen readers read.

import { byId, element, keyed, set, setText, svg } from "../dom.js";
import { clock, displayName, duration, plural } from "../format.js";
import { serverName } from "../timeline.js";

const ENTRIES_SHOWN_MAX = 60;
const WINDOW_MS_MIN = 60_000;
const WINDOW_MS_MAX = 30 * 60_000;
const LANE = 24;
const BAR = 16;
const LABEL = 132;
const LABEL_NARROW = 96;
const NARROW = 480;
const SIGNS = {
  joined: "+", left: "−", agreed: "=", differs: "≠", grown: "↑", narrowed: "↓",
  created: "…", running: "›", succeeded: "✓", failed: "×",
};

export function drawEvents(timeline) {
  const entries = timeline.recent(ENTRIES_SHOWN_MAX);
  keyed(byId("events"), entries, {
    key: (entry) => `${entry.at} ${entry.kind} ${entry.text}`,
    make: (entry) =>
      element(
        "li",
        { "data-kind": entry.kind },
        element("time", { datetime: new Date(entry.at).toISOString() }, clock(new Date(entry.at))),
        element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[entry.kind] ?? "·"),
        element("span", {}, entry.text),
      ),
    update: () => undefined,
  });
  return entries;
}

export function drawLanes(model) {
  const place = byId("lanes");
  const width = Math.floor(place.clientWidth);
  if (width < 100) return;
  const now = Date.now();
  const lanes = makeLanes(model, now);
  const label = width < NARROW ? LABEL_NARROW : LABEL;
  const start = startOf(lanes, now);
  const x = (at) => label + ((Math.max(at, start) - start) / (now - start)) * (width - label - 2);
  const height = lanes.length * LANE + 18;
  const picture = svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `The last ${duration((now - start) / 1000)}: ${plural(lanes.length - 2, "server")}, agreement and migrations; as text below` },
    ...lanes.flatMap((lane, index) => drawLane(lane, index * LANE, { x, label, width, start, now })),
    ...ticks(start, now, x, height),
  );
  place.replaceChildren(picture);
}

function makeLanes(model, now) {
  const places = new Map();
  for (const { server, from, to } of model.timeline.lifetimes.values()) {
    const name = serverName(server);
    const bars = places.get(name) ?? [];
    bars.push({ from, to: to ?? now, kind: to === null ? "alive" : "gone", text: server.release || server.id.slice(-6), title: `${name} ${server.release} ${server.id}` });
    places.set(name, bars);
  }
  const servers = [...places].sort(([one], [two]) => one.localeCompare(two, "en", { numeric: true }));
  return [
    ...servers.map(([name, bars]) => ({ name, bars })),
    { name: "Agreement", bars: agreementBars(model, now) },
    { name: "Migrations", bars: migrationBars(model, now) },
  ];
}

function agreementBars(model, now) {
  const steps = model.timeline.differing();
  const first = Math.min(...[...model.timeline.lifetimes.values()].map((life) => life.from), now);
  const bars = [];
  let open = { from: Math.min(first, steps[0]?.at ?? now), count: 0 };
  for (const step of [...steps, { at: now, count: null }]) {
    if (step.count === open.count) continue;
    bars.push({
      from: open.from,
      to: step.at,
      kind: open.count ? "differs" : "agreed",
      text: open.count ? plural(open.count, "differs", "differ") : "agreed",
      title: open.count ? `servers differ on ${plural(open.count, "resource")}` : "all servers agree",
    });
    open = { from: step.at, count: step.count };
  }
  return bars;
}

function migrationBars(model, now) {
  return [...model.migrations.values()]
    .filter((each) => each.started !== null || each.created !== null)
    .map((each) => ({
      from: each.started ?? each.created,
      to: each.ended ?? now,
      kind: each.phase,
      text: displayName(each.key),
      title: `${displayName(each.key)}: ${each.phase}`,
    }));
}

// The start of the time axis: the oldest recent change, within bounds. The start of a server that has
// been running for long does not count.
function startOf(lanes, now) {
  const moments = lanes.flatMap((lane) => lane.bars.flatMap((bar) => [bar.from, bar.to]));
  const recent = moments.filter((at) => at > now - WINDOW_MS_MAX && at < now - 1000);
  return Math.min(...recent, now - WINDOW_MS_MIN);
}

function drawLane({ name, bars }, top, { x, label, width, start, now }) {
  const middle = top + LANE / 2;
  const nodes = [
    svg("text", { x: 0, y: middle, class: "lane-name" }, shortened(name, label)),
    svg("line", { x1: label, x2: width, y1: middle, y2: middle, class: "lane-line" }),
  ];
  for (const { from, to, kind, text, title } of bars) {
    if (to < start || from > now) continue;
    const left = x(from);
    const long = Math.max(2, x(to) - left);
    nodes.push(
      svg("rect", { x: left, y: top + (LANE - BAR) / 2, width: long, height: BAR, rx: 3, class: `bar-${kind}` }, svg("title", {}, title)),
    );
    if (long > text.length * 7 + 8) nodes.push(svg("text", { x: left + 5, y: middle, class: "bar-text" }, text));
  }
  return nodes;
}

const shortened = (name, label) => {
  const most = Math.floor(label / 7.2);
  return name.length > most ? `…${name.slice(1 - most)}` : name;
};

function ticks(start, now, x, height) {
  const nodes = [];
  for (const at of [start, now]) {
    const isEnd = at === now;
    nodes.push(
      svg("text", { x: x(at), y: height - 3, class: "tick", "text-anchor": isEnd ? "end" : "start" }, isEnd ? "now" : clock(new Date(at))),
    );
  }
  return nodes;
}

// Announce new entries to screen readers.
export function announce(entries, seen) {
  const fresh = entries.filter((entry) => !seen.has(`${entry.at} ${entry.text}`));
  for (const entry of entries) seen.add(`${entry.at} ${entry.text}`);
  if (fresh.length) setText(byId("announce"), fresh.slice(0, 3).map((entry) => entry.text).join(". "));
}
