// A line chart without axes.

import { set, svg } from "../dom.js";

const WIDTH = 120;
const HEIGHT = 24;
const POINTS_MAX = 60;
// A short series is not stretched over the whole width.
const POINTS_MIN = 12;

export function sparkline() {
  return svg(
    "svg",
    { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
    svg("path", { class: "area" }),
    svg("path", { class: "line" }),
  );
}

// Values that are null are unknown: the line is drawn across them.
export function drawSparkline(node, values, about) {
  const shown = values.slice(-POINTS_MAX);
  const top = Math.max(...shown.map((value) => value ?? 0), 1e-9) * 1.1;
  const places = Math.max(shown.length, POINTS_MIN);
  const step = WIDTH / (places - 1);
  const first = places - shown.length;
  const points = [];
  shown.forEach((value, index) => {
    if (value === null) return;
    points.push([(first + index) * step, HEIGHT - 1 - (value / top) * (HEIGHT - 2)]);
  });
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" L");
  set(node.lastChild, "d", points.length > 1 ? `M${line}` : null);
  const [left, right] = [points.at(0)?.[0], points.at(-1)?.[0]];
  const area = `M${left},${HEIGHT} L${line} L${right},${HEIGHT} Z`;
  set(node.firstChild, "d", points.length > 1 ? area : null);
  set(node, "aria-label", about);
}
