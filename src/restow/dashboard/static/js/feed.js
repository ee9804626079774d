// Live data from the API: several watches over one connection, resumed where they ended.
//
// A channel starts with all existing objects (which the server sends as events, followed by a
// bookmark), then continues with changes. After a disconnect it resumes at the last resource version
// it received; only if the server no longer has that version (410) does it list all objects again.

const WATCH = "/dashboard/watch";
const INITIAL_END = "k8s.io/initial-events-end";
const WAIT_MS_MIN = 500;
const WAIT_MS_MAX = 15_000;
// The server sends a bookmark at least once a minute. Without any data for longer, it is disconnected.
const SILENCE_MS_MAX = 75_000;
const LINE_LENGTH_MAX = 16 * 1024 * 1024;

export class Channel {
  constructor(name, path, parameters = {}) {
    this.name = name;
    this.path = path;
    this.parameters = parameters;
    this.version = "";
    this.isOffered = true;
    this.objects = new Map();
    // Keys of the initial objects received so far; null when all were received.
    this.seen = new Set();
  }

  target() {
    const query = new URLSearchParams({
      ...this.parameters,
      watch: "1",
      allowWatchBookmarks: "true",
    });
    if (this.version) {
      query.set("resourceVersion", this.version);
    } else {
      query.set("sendInitialEvents", "true");
      query.set("resourceVersionMatch", "NotOlderThan");
      this.seen = new Set();
    }
    return `${this.path}?${query}`;
  }

  get isComplete() {
    return !this.isOffered || this.seen === null;
  }

  restart() {
    this.version = "";
  }
}

// Methods of `listener`: changed(channel, type, object, before), synced(channel),
// state(name, detail), and denied(), after which the feed ends.
export class Feed {
  constructor(channels, listener) {
    this.channels = channels;
    this.listener = listener;
    this.stopper = new AbortController();
    this.failures = 0;
  }

  stop() {
    this.stopper.abort();
  }

  async run() {
    while (!this.stopper.signal.aborted) {
      let reason = "";
      try {
        reason = await this.connection();
      } catch (error) {
        reason = error instanceof Denied ? "denied" : "lost";
      }
      if (this.stopper.signal.aborted) return;
      if (reason === "denied") {
        this.listener.denied();
        return;
      }
      if (reason === "again") continue;
      await this.pause();
    }
  }

  async pause() {
    const most = Math.min(WAIT_MS_MAX, WAIT_MS_MIN * 2 ** this.failures);
    this.failures += 1;
    const wait = most * (0.5 + Math.random() / 2);
    this.listener.state("reconnecting", wait);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      const now = () => {
        clearTimeout(timer);
        resolve();
      };
      addEventListener("online", now, { once: true });
      this.stopper.signal.addEventListener("abort", now, { once: true });
    });
  }

  // One connection, until it ends: "again" to reconnect at once, "lost" to wait first.
  async connection() {
    const open = this.channels.filter((channel) => channel.isOffered);
    const query = new URLSearchParams(open.map((channel) => ["watch", channel.target()]));
    const ender = new AbortController();
    const end = () => ender.abort();
    this.stopper.signal.addEventListener("abort", end);
    let silence = setTimeout(end, SILENCE_MS_MAX);
    try {
      const answer = await fetch(`${WATCH}?${query}`, { signal: ender.signal, cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) throw new Denied();
      if (!answer.ok || answer.body === null) return "lost";
      this.reportState();
      for await (const line of lines(answer.body)) {
        clearTimeout(silence);
        silence = setTimeout(end, SILENCE_MS_MAX);
        const space = line.indexOf(" ");
        const ended = this.take(open[Number(line.slice(0, space))], JSON.parse(line.slice(space + 1)));
        if (ended) return ended;
      }
      return "lost";
    } finally {
      clearTimeout(silence);
      this.stopper.signal.removeEventListener("abort", end);
      ender.abort();
    }
  }

  // Handle one event of a channel; a result that is not empty ends the connection.
  take(channel, event) {
    const { type, object } = event;
    if (type === "ERROR") return this.fail(channel, object);
    // A watch times out regularly, and is resumed.
    if (type === "END") return channel.isOffered ? "again" : "";
    this.failures = 0;
    const isEnd = type === "BOOKMARK" && Boolean(object.metadata.annotations?.[INITIAL_END]);
    // Initial objects are not ordered by version, so a watch cannot be resumed at one of them.
    if (channel.seen === null || isEnd) channel.version = object.metadata.resourceVersion;
    if (isEnd) this.complete(channel);
    if (type === "BOOKMARK") return "";
    const key = object.metadata.uid;
    const before = channel.objects.get(key);
    channel.seen?.add(key);
    if (type === "DELETED") channel.objects.delete(key);
    else channel.objects.set(key, object);
    this.listener.changed(channel, type === "DELETED" ? type : "PRESENT", object, before);
    return "";
  }

  // All initial objects were received: the others were deleted while disconnected.
  complete(channel) {
    const { seen } = channel;
    channel.seen = null;
    for (const [key, object] of channel.objects) {
      if (seen.has(key)) continue;
      channel.objects.delete(key);
      this.listener.changed(channel, "DELETED", object, object);
    }
    this.listener.synced(channel);
    this.reportState();
  }

  fail(channel, status) {
    switch (status.code) {
      case 401:
      case 403:
        throw new Denied();
      case 404:
        // This cluster does not serve the resource; show the others.
        channel.isOffered = false;
        this.listener.synced(channel);
        this.reportState();
        return "";
      case 410:
        channel.restart();
        return "again";
      default:
        return "lost";
    }
  }

  reportState() {
    const complete = this.channels.every((channel) => channel.isComplete);
    this.listener.state(complete ? "live" : "loading");
  }
}

class Denied extends Error {}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    if (rest.length > LINE_LENGTH_MAX) throw new Error("a line is too long");
    yield* parts;
  }
}
