// One card per server: address, release, time since the last heartbeat, load.

import { byId, element, keyed, set, setText } from "../dom.js";
import { duration, milliseconds, plural, rate } from "../format.js";
import { serverName } from "../timeline.js";
import { drawSparkline, sparkline } from "./sparkline.js";

export function drawServers(model) {
  keyed(byId("servers"), model.serverList(), { key: (server) => server.id, make, update });
}

function make(server) {
  const card = element(
    "li",
    { class: "server", "data-id": server.id },
    element("h3", {}, element("span", { class: "address" }), element("span", { class: "release" })),
    element("p", { class: "id muted" }),
    element("p", { class: "beat" }, element("span", { class: "dot", "aria-hidden": "true" }), element("span", { class: "heartbeat" })),
    element("div", { class: "figures" }, figure("requests"), figure("latency")),
  );
  return card;
}

function figure(name) {
  return element("div", { class: `figure ${name}` }, element("p"), sparkline());
}

function update(card, server) {
  card.server = server;
  setText(card.querySelector(".address"), serverName(server));
  setText(card.querySelector(".release"), server.release ? `release ${server.release}` : "");
  const parts = [server.id, server.host, server.mode ? `mode ${server.mode}` : ""];
  setText(card.querySelector(".id"), parts.filter(Boolean).join(" · "));
  const rates = server.samples.map((sample) => sample.perSecond);
  const times = server.samples.map((sample) => sample.p99);
  drawFigure(card.querySelector(".requests"), rates, "requests/s", rate);
  drawFigure(card.querySelector(".latency"), times, "p99", milliseconds);
  tick(card);
}

function drawFigure(node, values, unit, format) {
  const last = values.at(-1);
  const isKnown = last !== undefined && last !== null;
  setText(node.firstChild, `${isKnown ? format(last) : "–"} ${unit}`);
  const known = values.filter((value) => value !== null);
  const most = known.length ? `, maximum ${format(Math.max(...known))}` : "";
  drawSparkline(node.lastChild, values, `${unit} over the last ${plural(values.length, "heartbeat")}${most}`);
}

function tick(card) {
  const { server } = card;
  if (server.lacksLease) {
    setText(card.querySelector(".heartbeat"), "no identity lease");
    set(card, "data-lease", "late");
    return;
  }
  const age = (performance.now() - server.renewedAt) / 1000;
  setText(card.querySelector(".heartbeat"), `heartbeat ${duration(age)} ago`);
  set(card, "data-lease", age > server.leaseSeconds ? "expired" : age > server.leaseSeconds * 0.66 ? "late" : "alive");
}

// Heartbeats age without any event.
export function tickServers() {
  for (const card of byId("servers").children) tick(card);
}
