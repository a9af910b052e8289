// @ts-check
/** The page's one socket. It opens again by itself, and it does not trust a socket that says nothing: phones drop
 * them without a close, and a page that comes back from the browser's cache hears only `pageshow`. */

/** @typedef {import("./types.js").Incoming} Incoming */

const BACKOFF_MS = [300, 700, 1500, 3000, 6000, 10000];
/** Longer waits where the server answers and has no room: it is not to be asked the harder for it. */
const CROWDED_MS = [2000, 4000, 8000, 16000, 24000];
const QUIET_MS = 25000;
const ANSWER_MS = 5000;

/**
 * Milliseconds until the next attempt, spread by a quarter either way so that many pages do not come at once.
 * @param {number} failures in a row, before this one @param {boolean} crowded the server had no room
 * @param {number} chance from 0 to 1 @returns {number}
 */
export function backoff(failures, crowded, chance) {
  const waits = crowded ? CROWDED_MS : BACKOFF_MS;
  return waits[Math.min(failures, waits.length - 1)] * (0.75 + chance / 2);
}

/** What a request is rejected with when the socket goes before the answer. */
export class Disconnected extends Error {
  constructor() {
    super("The connection went before the answer came. It will be tried again.");
    this.name = "Disconnected";
  }
}

/** What a request is rejected with when the server says no. */
export class Refusal extends Error {
  /** @param {import("./types.js").Fault} fault */
  constructor(fault) {
    super(fault.message);
    this.name = "Refusal";
    this.code = fault.code;
    this.field = fault.field;
  }
}

export class ArenaSocket extends EventTarget {
  /** @param {string} url */
  constructor(url) {
    super();
    this.url = url;
    /** @type {WebSocket | null} */
    this.ws = null;
    /** The server has said something on this socket, other than that it has no room. */
    this.up = false;
    /** The server answers, but had no room for one more socket the last time. */
    this.crowded = false;
    this.turnedAway = false;
    this.ref = 0;
    this.failures = 0;
    /** @type {import("./types.js").Status | null} the last one heard */
    this.status = null;
    /** @type {Map<number, {resolve: (answer: Incoming) => void, reject: (why: Error) => void}>} */
    this.waiting = new Map();
    this.heard = 0;
    this.retry = 0;
    this.watch = 0;
    window.addEventListener("pageshow", (event) => this.#check(event.persisted));
    window.addEventListener("online", () => this.#check(true));
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.#check(false);
    });
    window.addEventListener("pagehide", (event) => {
      if (!event.persisted) this.dispatchEvent(new Event("leaving"));
    });
  }

  connect() {
    if (this.ws) return;
    clearTimeout(this.retry);
    const ws = new WebSocket(this.url);
    this.ws = ws;
    this.turnedAway = false;
    ws.onopen = () => {
      if (this.ws !== ws) return;
      this.heard = Date.now();
      this.#watch();
    };
    ws.onmessage = (event) => {
      if (this.ws === ws) this.#receive(String(event.data));
    };
    ws.onclose = () => this.#lost(ws);
  }

  /** @param {WebSocket} ws */
  #lost(ws) {
    if (this.ws !== ws) return;
    this.ws = null;
    const changed = this.up || this.crowded !== this.turnedAway;
    if (this.crowded !== this.turnedAway) this.failures = 0;
    this.crowded = this.turnedAway;
    this.up = false;
    clearTimeout(this.watch);
    for (const { reject } of this.waiting.values()) reject(new Disconnected());
    this.waiting.clear();
    this.retry = window.setTimeout(() => this.connect(), backoff(this.failures, this.crowded, Math.random()));
    this.failures += 1;
    if (changed) this.dispatchEvent(new Event("down"));
  }

  /** @param {string} text */
  #receive(text) {
    this.heard = Date.now();
    /** @type {Incoming} */
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    if (message.kind === "error" && message.code === "too_many_sockets") {
      this.turnedAway = true;
      return;
    }
    if (message.kind === "status") this.status = message;
    this.#welcomed();
    const ref = "ref" in message ? message.ref : null;
    const asked = ref === null ? undefined : this.waiting.get(ref);
    if (asked && ref !== null && message.kind !== "queued") {
      this.waiting.delete(ref);
      if (message.kind === "error") asked.reject(new Refusal(message));
      else asked.resolve(message);
    }
    this.dispatchEvent(new CustomEvent("message", { detail: message }));
  }

  /** The server takes this socket: it has said something on it. */
  #welcomed() {
    this.failures = 0;
    if (this.up) return;
    this.up = true;
    this.crowded = false;
    this.dispatchEvent(new Event("up"));
  }

  /**
   * Sends a message and gives its answer. Rejects with Refusal or Disconnected.
   * @param {Record<string, unknown>} message @param {(ref: number) => void} [sent] @returns {Promise<Incoming>}
   */
  request(message, sent) {
    const ws = this.ws;
    if (!ws || !this.up) return Promise.reject(new Disconnected());
    this.ref += 1;
    const ref = this.ref;
    sent?.(ref);
    return new Promise((resolve, reject) => {
      this.waiting.set(ref, { resolve, reject });
      ws.send(JSON.stringify({ ...message, ref }));
      this.#watch();
    });
  }

  /** Sends without waiting, for the moment when the page goes. @param {Record<string, unknown>} message */
  tell(message) {
    this.ref += 1;
    if (this.ws?.readyState === WebSocket.OPEN) this.ws.send(JSON.stringify({ ...message, ref: this.ref }));
  }

  /** Comes back from sleep: a dead socket is opened at once, unless the server asked to wait; a silent one must prove
   * itself. @param {boolean} doubt */
  #check(doubt) {
    if (!this.ws) {
      if (this.crowded) return;
      this.failures = 0;
      if (this.retry) this.connect();
    } else if (this.up && (doubt || Date.now() - this.heard > ANSWER_MS)) this.#probe();
  }

  #watch() {
    clearTimeout(this.watch);
    if (document.hidden) return;
    const wait = this.waiting.size ? ANSWER_MS * 3 : QUIET_MS;
    this.watch = window.setTimeout(() => this.#probe(), wait);
  }

  /** Any word from the server will do as a sign of life. */
  #probe() {
    const ws = this.ws;
    if (ws?.readyState !== WebSocket.OPEN) return;
    const before = this.heard;
    this.tell({ type: "ping" });
    clearTimeout(this.watch);
    this.watch = window.setTimeout(() => {
      if (this.ws !== ws) return;
      if (this.heard > before) this.#watch();
      else {
        ws.close();
        this.#lost(ws);
      }
    }, ANSWER_MS);
  }
}

/** @type {ArenaSocket | null} */
let shared = null;

/** The page's socket, wss where the page came over https. @returns {ArenaSocket} */
export function sharedSocket() {
  if (!shared) {
    const url = new URL("/ws/arena", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    shared = new ArenaSocket(url.href);
  }
  shared.connect();
  return shared;
}
