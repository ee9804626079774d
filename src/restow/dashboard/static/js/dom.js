// Creates and updates elements. Data is inserted as text only: nothing here accepts markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// An element with attributes and children; a child that is not a node becomes text.
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  setAll(node, attributes);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function setAll(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) set(node, name, value);
}

// Set an attribute if it differs; null, undefined and false remove it.
export function set(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

// Unchanged text keeps its node, so that selection and screen reader position are kept.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Reconcile the children of a node with a list of items. The element of an item is kept by its key
// between calls: `make` is called once for it, `update` each time.
export function keyed(parent, items, { key, make, update }) {
  const known = (parent.keyedChildren ??= new Map());
  const wanted = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    const id = key(item);
    wanted.add(id);
    let node = known.get(id);
    if (node === undefined) {
      node = make(item);
      known.set(id, node);
    }
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const [id, node] of known) {
    if (wanted.has(id)) continue;
    node.remove();
    known.delete(id);
  }
}
