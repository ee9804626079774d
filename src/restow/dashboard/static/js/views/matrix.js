// The table of resources and servers: the encoding version per server, and persisted versions.
//
// A row is created once and rendered again only when its resource has changed, so that hundreds of
// resources stay fast. Filter and order only hide and move rows.

import { byId, element, keyed, set, setText } from "../dom.js";
import { displayName, plural, shortVersion } from "../format.js";
import { assess } from "../model.js";
import { serverName } from "../timeline.js";

export class Matrix {
  constructor(model) {
    this.model = model;
    this.table = byId("matrix");
    this.rows = new Map();
    this.columns = [];
    this.view = { text: "", differing: false, sort: "attention" };
    this.needsOrder = true;
    this.hasKeys = false;
    this.keyLabel = null;
    this.listen();
  }

  listen() {
    const filter = byId("filter");
    filter.addEventListener("input", () => this.setView({ text: filter.value.trim().toLowerCase() }));
    const differing = byId("differing");
    differing.addEventListener("change", () => this.setView({ differing: differing.checked }));
    const sort = byId("sort");
    sort.addEventListener("change", () => this.setView({ sort: sort.value }));
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest?.("input, select, textarea")) return;
      event.preventDefault();
      filter.focus();
    });
  }

  setView(part) {
    Object.assign(this.view, part);
    this.order();
  }

  draw() {
    const { model } = this;
    let names = model.changed;
    const hasKeys = model.isEncrypted;
    const isOther = this.hasKeys !== hasKeys;
    this.hasKeys = hasKeys;
    // Once for all rows: the label of a key depends on all others.
    this.keyLabel = hasKeys ? model.keyLabels() : null;
    if ((model.serversChanged || isOther) && (this.drawHead() || isOther)) names = model.resources.keys();
    for (const key of [...names]) this.drawRow(key);
    if (model.changed.size || this.needsOrder) this.order();
  }

  // Whether the columns have changed, so that all rows must be rendered.
  drawHead() {
    const servers = this.model.serverList();
    const ids = servers.map((server) => server.id);
    const isSame = ids.join() === this.columns.join();
    this.columns = ids;
    if (this.table.tHead.rows.length === 0) this.table.tHead.append(element("tr"));
    const fixed = (key, text) => ({ id: key, title: text, detail: "" });
    const cells = [
      fixed(" name", "Resource"),
      ...servers.map((server) => ({ id: server.id, title: serverName(server), detail: server.release || server.id.slice(-6), server })),
      fixed(" agreed", "Agreed"),
      ...(this.hasKeys ? [fixed(" key", "Key")] : []),
      fixed(" stored", "May be stored"),
      fixed(" migration", "Migration"),
    ];
    keyed(this.table.tHead.rows[0], cells, {
      key: (cell) => cell.id,
      make: () => element("th", { scope: "col" }, element("span"), element("small", { class: "muted" })),
      update: (node, cell) => {
        set(node, "class", cell.server ? "server-column" : null);
        set(node, "title", cell.server ? cell.id : null);
        setText(node.firstChild, cell.title);
        setText(node.lastChild, cell.detail);
      },
    });
    return !isSame;
  }

  drawRow(key) {
    const resource = this.model.resources.get(key);
    const known = this.rows.get(key);
    if (resource === undefined) {
      known?.remove();
      this.rows.delete(key);
      return;
    }
    const row = known ?? this.makeRow(resource);
    const found = assess(this.model, resource);
    row.found = found;
    row.resource = resource;
    set(row, "data-differs", found.differs || found.keysDiffer);
    set(row, "data-old", found.isStale);
    const cells = [
      { id: " name", resource },
      ...this.columns.map((id) => ({ id, entry: resource.entries.get(id), resource, found })),
      { id: " agreed", resource, found },
      ...(this.hasKeys ? [{ id: " key", found }] : []),
      { id: " stored", found },
      { id: " migration", found },
    ];
    keyed(row, cells, { key: (cell) => cell.id, make: (cell) => this.makeCell(cell), update: (node, cell) => this.drawCell(node, cell) });
  }

  makeRow(resource) {
    const row = element("tr");
    row.dataset.resource = resource.key;
    this.rows.set(resource.key, row);
    this.needsOrder = true;
    return row;
  }

  makeCell({ id, resource }) {
    if (id === " name") {
      const group = resource.group || "core";
      return element("th", { scope: "row" }, element("span", {}, resource.resource), " ", element("small", { class: "muted" }, group));
    }
    if (id === " stored") return element("td", { class: "stored", "data-label": "May be stored" });
    if (id === " migration") return element("td", { class: "migration", "data-label": "Migration" });
    if (id === " agreed") return element("td", { class: "agreed", "data-label": "Agreed" });
    if (id === " key") return element("td", { class: "stored key", "data-label": "Key" });
    return element("td", { class: "version" });
  }

  drawCell(node, { id, entry, resource, found }) {
    switch (id) {
      case " name":
        return undefined;
      case " agreed":
        return drawAgreed(node, resource, found);
      case " key":
        return this.drawKeys(node, found.keys);
      case " stored":
        return drawStored(node, found.stored);
      case " migration":
        return drawMigration(node, found.migration);
      default:
        return this.drawVersion(node, id, { entry, found });
    }
  }

  drawVersion(node, id, { entry, found }) {
    set(node, "data-label", serverName(this.model.servers.get(id) ?? { id }));
    if (entry === undefined) {
      setText(node, "–");
      set(node, "title", "not served by this server");
      set(node, "data-look", "none");
      return;
    }
    const version = shortVersion(entry.encoding);
    setText(node, version);
    const key = found.keys === null ? "" : `, with the key ${this.keyLabel(entry.key)}`;
    set(node, "title", `writes ${entry.encoding}${key}, reads ${entry.decodable.join(", ")}`);
    // Servers in the minority are highlighted.
    const sizes = [...found.encodings.values()].map((ids) => ids.length);
    const isMinority = found.encodings.get(version).length < Math.max(...sizes);
    set(node, "data-look", found.encodings.size < 2 ? "same" : isMinority ? "other" : "split");
  }

  // The key that servers write with, older keys of stored objects, and the pending key.
  drawKeys(node, keys) {
    const label = this.keyLabel;
    const nameOf = (id) => serverName(this.model.servers.get(id) ?? { id });
    const chips = [];
    for (const [key, ids] of keys?.written ?? []) {
      const who = keys.differ ? ` by ${ids.map(nameOf).sort().join(", ")}` : "";
      chips.push({ id: `written ${key}`, look: keys.differ ? "old" : "current", text: label(key) + who, title: `written with ${key}` });
    }
    for (const key of keys?.old ?? []) {
      chips.push({ id: `old ${key}`, look: "old", text: label(key), title: `objects may still be encrypted with ${key}: migrate` });
    }
    for (const key of new Set((keys?.waiting ?? []).map((each) => each.key))) {
      const lacking = keys.lacking.filter((each) => each.key === key).map(({ id }) => nameOf(id)).sort();
      const why = lacking.length ? `${lacking.join(", ")} cannot read it: add it to the encryption configuration there` : "servers switch to it automatically";
      chips.push({ id: `waiting ${key}`, look: "unknown", text: `${label(key)} pending`, title: why });
    }
    keyed(node, chips, {
      key: ({ id }) => id,
      make: () => element("span"),
      update: (chip, { look, text, title }) => {
        set(chip, "class", `chip ${look}`);
        set(chip, "title", title);
        setText(chip, text);
      },
    });
  }

  order() {
    this.needsOrder = false;
    const { text, differing, sort } = this.view;
    const body = this.table.tBodies[0];
    let shown = 0;
    for (const row of this.rows.values()) {
      const isWanted = displayName(row.resource.key).includes(text) && (!differing || row.found.attention > 0);
      set(row, "hidden", !isWanted);
      shown += isWanted;
    }
    const wanted = [...this.rows.values()].sort((one, two) => compare(one, two, sort));
    // Rows in the right order are not moved, to keep focus, selection and scroll position.
    if (wanted.some((row, index) => body.rows[index] !== row)) body.append(...wanted);
    const total = this.rows.size;
    setText(byId("shown"), shown === total ? plural(total, "resource") : `${shown} of ${plural(total, "resource")}`);
    set(byId("matrix-empty"), "hidden", shown > 0 || total === 0);
    set(this.table, "hidden", shown === 0 && total > 0);
  }
}

// Created once: localeCompare is noticeably slow with hundreds of rows.
const inOrder = new Intl.Collator("en", { numeric: true }).compare;

function compare(one, two, sort) {
  const byName = inOrder(one.resource.resource, two.resource.resource) || inOrder(one.resource.group, two.resource.group);
  switch (sort) {
    case "attention":
      return two.found.attention - one.found.attention || byName;
    case "changed":
      return two.resource.touched - one.resource.touched || byName;
    case "group":
      return inOrder(one.resource.group, two.resource.group) || byName;
    default:
      return byName;
  }
}

function drawAgreed(node, resource, { differs, keysDiffer, refusal }) {
  const isAgreed = !differs && !keysDiffer;
  const version = resource.common ? shortVersion(resource.common) : "";
  setText(node, isAgreed ? version || "–" : keysDiffer ? "keys differ" : "differ");
  set(node, "data-agreed", resource.entries.size === 0 ? "none" : isAgreed ? "yes" : "no");
  set(node, "title", refusal ? `${refusal.reason}: ${refusal.message}` : null);
}

function drawStored(node, stored) {
  keyed(node, stored, {
    key: ({ hash }) => hash,
    make: () => element("span"),
    update: (chip, { hash, name, meaning }) => {
      set(chip, "class", `chip ${meaning}`);
      set(chip, "title", meaning === "unknown" ? "Objects may be stored in any version" : hash);
      setText(chip, name);
    },
  });
}

function drawMigration(node, migration) {
  if (migration === null) {
    setText(node, "");
    return;
  }
  if (node.firstElementChild === null) node.replaceChildren(element("span", { class: "badge" }));
  set(node, "data-phase", migration.phase);
  const percent = migration.isActive && migration.share !== null ? ` ${Math.floor(migration.share * 100)} %` : "";
  setText(node.firstElementChild, `${migration.phase}${percent}`);
}
