// The page: sign-in and sign-out, the feed that updates the model, and rendering of changes.

import { byId, set, setText } from "./dom.js";
import { Channel, Feed } from "./feed.js";
import { HashNames } from "./hashes.js";
import { Model } from "./model.js";
import { currentUser, enterWithTicket, enterWithToken, leave, takeTicket, userOfTicket } from "./session.js";
import { startTheme } from "./theme.js";
import { announce, drawEvents, drawLanes } from "./views/history.js";
import { Matrix } from "./views/matrix.js";
import { drawMigrations } from "./views/migrations.js";
import { drawServers, tickServers } from "./views/servers.js";
import { drawSummary } from "./views/summary.js";

const IDENTITY = "apiserver.kubernetes.io/identity";
const TICK_MS = 1_000;
const DISCOVER_AGAIN_MS = 1_000;

const channels = () => [
  new Channel("leases", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", { labelSelector: IDENTITY }),
  new Channel("reports", "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"),
  new Channel("states", "/apis/migration.k8s.io/v1alpha1/storagestates"),
  new Channel("requests", "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"),
  new Channel("in-tree", "/apis/storagemigration.k8s.io/v1/storageversionmigrations"),
  new Channel("events", "/api/v1/namespaces/default/events", { fieldSelector: "involvedObject.kind=StorageVersion" }),
];

class Page {
  constructor() {
    this.hashes = new HashNames();
    this.model = new Model(this.hashes);
    this.matrix = new Matrix(this.model);
    this.announced = new Set();
    this.isScheduled = false;
    this.discovery = null;
    this.feed = new Feed(channels(), this);
    this.timer = setInterval(() => this.tick(), TICK_MS);
    new ResizeObserver(() => this.drawPicture()).observe(byId("lanes"));
  }

  stop() {
    this.feed.stop();
    clearInterval(this.timer);
  }

  // --- called by the feed ---

  changed(channel, type, object, before) {
    const knownServers = this.model.servers.size;
    this.model.take(channel, type, object, before);
    if (channel.name === "leases" && this.model.servers.size > knownServers) this.discover();
    this.schedule();
  }

  synced() {
    this.model.isSynced = this.feed.channels.every((channel) => channel.isComplete);
    this.schedule();
  }

  state(name, detail) {
    const texts = {
      live: "live",
      loading: "loading",
      reconnecting: `reconnecting in ${Math.ceil((detail ?? 0) / 1000)} s`,
    };
    const node = byId("state");
    set(node, "data-state", name);
    setText(node, texts[name]);
    set(byId("main"), "data-stale", name === "reconnecting");
  }

  denied() {
    this.stop();
    showLogin("The session has expired, or this user may not list storage versions.");
  }

  // --- hashes ---

  // A new server may serve other versions. One request per second is enough.
  discover() {
    this.discovery ??= new Promise((resolve) => setTimeout(resolve, this.hashes.kinds.size ? DISCOVER_AGAIN_MS : 0))
      .then(() => this.hashes.discover())
      .catch(() => undefined) // version names are optional; the next server triggers another request
      .then(() => {
        this.discovery = null;
        return this.learn([...this.model.resources.values()]);
      });
  }

  async learn(resources) {
    for (const resource of resources) {
      const { group } = resource;
      if (await this.hashes.learn(group, resource.resource, this.model.versionsOf(resource))) {
        this.model.changed.add(resource.key);
        this.schedule();
      }
    }
  }

  // --- rendering ---

  schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.isScheduled = false;
    const { model } = this;
    if (!model.isSynced) return;
    const changed = [...model.changed].map((key) => model.resources.get(key)).filter(Boolean);
    void this.learn(changed);
    this.matrix.draw();
    drawSummary(model);
    drawServers(model);
    drawMigrations(model);
    if (model.timeline.changed) {
      model.timeline.changed = false;
      announce(drawEvents(model.timeline), this.announced);
    }
    model.changed.clear();
    model.serversChanged = false;
    this.drawPicture();
  }

  drawPicture() {
    if (this.model.isSynced) drawLanes(this.model);
  }

  tick() {
    if (document.hidden || !this.model.isSynced) return;
    tickServers();
    this.drawPicture();
  }
}

// --- sign-in and sign-out ---

function showLogin(message = "") {
  set(byId("main"), "hidden", true);
  set(byId("leave"), "hidden", true);
  setText(byId("who"), "");
  setText(byId("state"), "signed out");
  set(byId("state"), "data-state", "out");
  set(byId("login"), "hidden", false);
  setText(byId("login-error"), message);
  byId("token").focus();
}

let page = null;

async function start() {
  const { user, expires } = await currentUser();
  if (!user) {
    showLogin();
    return;
  }
  set(byId("login"), "hidden", true);
  set(byId("main"), "hidden", false);
  setText(byId("who"), user);
  // A user with a client certificate cannot sign out: the browser presents it each time.
  set(byId("leave"), "hidden", !expires);
  page?.stop();
  page = new Page();
  void page.feed.run();
}

// Returns whether the user has agreed and is signed in.
async function confirmLink(ticket) {
  const user = await userOfTicket(ticket);
  const current = (await currentUser()).user;
  setText(byId("confirm-user"), user);
  setText(byId("confirm-current"), current && current !== user ? `You are signed in as ${current}.` : "");
  setText(byId("state"), "signed out");
  set(byId("state"), "data-state", "out");
  set(byId("confirm"), "hidden", false);
  byId("confirm-yes").focus();
  const isConfirmed = await new Promise((resolve) => {
    byId("confirm-yes").addEventListener("click", () => resolve(true));
    byId("confirm-no").addEventListener("click", () => resolve(false));
  });
  set(byId("confirm"), "hidden", true);
  if (isConfirmed) await enterWithTicket(ticket);
  return isConfirmed;
}

byId("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = byId("token");
  setText(byId("login-error"), "");
  try {
    await enterWithToken(field.value.trim());
    field.value = "";
    location.reload();
  } catch (error) {
    setText(byId("login-error"), error.message);
    field.select();
  }
});

byId("leave").addEventListener("click", async () => {
  try {
    await leave();
    location.reload();
  } catch (error) {
    setText(byId("state"), error.message);
  }
});

startTheme(byId("theme"));
setText(byId("place"), location.host);
try {
  const ticket = takeTicket();
  if (ticket && (await confirmLink(ticket))) location.reload();
  else await start();
} catch (error) {
  showLogin(error.message);
}
