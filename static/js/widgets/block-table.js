// @ts-check
/** <paged-block-table>: generation with a block table (sections 4.2 and 4.3), on a live arena or a recording. */
import { Controls } from "../core/controls.js";
import { el, say, set, uid } from "../core/dom.js";
import { frames } from "../core/loop.js";
import { describe } from "../core/words.js";
import { Ask } from "./block-table/ask.js";
import { Head, SHAPES } from "./block-table/head.js";
import { OwnClient } from "./block-table/client.js";
import { legend } from "./block-table/legend.js";
import { Links } from "./block-table/links.js";
import { LogicalView } from "./block-table/logical.js";
import { MemoryView, explain } from "./block-table/memory.js";
import { FigureSource } from "./block-table/source.js";
import { BlockTable } from "./block-table/table.js";
import { Tabs } from "./block-table/tabs.js";
import { Ticker } from "./block-table/ticker.js";
import { blank, choices, eventRequest, lines, look, unread } from "./block-table/view.js";

/** @typedef {import("./block-table/view.js").View} View */
/** @typedef {import("../core/session.js").Session} Session */

/** Milliseconds between two announcements while it plays. */
const ANNOUNCE_MS = 2500;

const KEYS = [
  "Anywhere in the playback row: left and right arrow, one event back or on. Space plays and pauses.",
  "On the time line also: Page Up and Page Down, a whole step; Home and End, the first event and the last.",
  "In the block table and in memory: arrow keys move from block to block, and what belongs together lights up.",
  "On the letters of the requests: left and right arrow choose which one is read.",
];
const SETTING = "Setting the scene: a few requests come and go, so that the free blocks are out of order.";
const FIRST = "They take blocks and give them back. The request that you will watch comes after them, and finds the blocks they left.";

export class PagedBlockTable extends HTMLElement {
  connectedCallback() {
    if (this.source) return;
    this.#build();
    /** The request that was chosen to be read; -1: the scene's own. */
    this.chosen = -1;
    this.dirty = true;
    this.announced = 0;
    this.loop = frames(this, (ms) => this.#frame(ms), () => this.session?.transport.catchUp());
    this.source = new FigureSource("growing", this.getAttribute("recording") ?? "/static/recordings/growing.jsonl",
      { block_size: 4, num_blocks: SHAPES[4] }, () => this.#changed(), () => this.#switched());
    this.#draw();
  }

  disconnectedCallback() {
    queueMicrotask(() => {
      if (this.isConnected) return;
      this.loop?.stop();
      this.source?.stop();
      this.controls?.stop();
      this.memory?.stop();
      this.source = undefined;
      this.replaceChildren();
    });
  }

  /** @returns {Session | null} what is on show */
  get session() {
    return this.source?.session ?? null;
  }

  /** @returns {View | null} what is drawn */
  get view() {
    return this.drawn ?? null;
  }

  #build() {
    const panel = uid("panel");
    this.head = new Head((size) => void this.resize(size), () => this.source?.reopen());
    this.ask = new Ask((prompt, most) => this.submit(prompt, most));
    this.ticker = new Ticker();
    this.tabs = new Tabs(panel, (request) => this.read(request));
    this.logical = new LogicalView({ back: () => this.session?.transport.seek(this.session.prefilled), again: () => void this.again() });
    this.table = new BlockTable();
    this.memory = new MemoryView();
    this.controls = new Controls(() => this.session);
    this.client = new OwnClient();
    this.detail = el("p", { class: "detail", "aria-hidden": "true" });
    this.spoken = el("p", { class: "hidden", "aria-live": "polite" });
    this.text = el("div");
    this.memoryTitle = el("h3");
    this.stage = el("div", { class: "stage" },
      el("div", { class: "pane reads" }, el("h3", {}, el("span", {}, "Request"), this.tabs.element, el("span", {}, "as it reads")), this.logical.element),
      el("div", { class: "pane of-table" }, el("h3", {}, "Block table"), this.table.element),
      el("div", { class: "pane physical" }, this.memoryTitle, this.memory.element, legend(), this.detail));
    set(this.logical.element, { id: panel, role: "tabpanel", tabindex: 0 });
    this.links = new Links(this.stage, (block) => this.#point(block), (block) => this.#choose(block));
    const asText = el("details", { class: "as-text" }, el("summary", {}, "The figure as text"), this.text);
    asText.addEventListener("toggle", () => this.#changed());
    this.asText = asText;
    const keys = el("details", { class: "keys" }, el("summary", {}, "Keys"), ...KEYS.map((line) => el("p", {}, line)));
    this.replaceChildren(this.head.element, this.ticker.element, el("div", { class: "run" }, this.stage, this.controls.element),
      this.ask.element, el("div", { class: "more" }, this.client.element, asText, keys), this.spoken);
  }

  /** Settles when the scene of what is on show has been set; until then requests of the reader would get in its way.
   * @returns {Promise<void>} */
  ready() {
    if (this.session?.set) return Promise.resolve();
    return new Promise((resolve) => {
      const look = () => {
        if (!this.session?.set) return;
        this.removeEventListener("paged-change", look);
        resolve();
      };
      this.addEventListener("paged-change", look);
    });
  }

  #changed() {
    this.dirty = true;
    this.loop?.wake();
    this.dispatchEvent(new CustomEvent("paged-change", { bubbles: true }));
  }

  /** @param {number} ms @returns {boolean} */
  #frame(ms) {
    const transport = this.session?.transport;
    const more = transport?.tick(ms) ?? false;
    if (this.dirty) this.#draw();
    return more || this.dirty === true;
  }

  #switched() {
    this.chosen = -1;
    this.links?.clear();
  }

  /** The request to read. @param {Session} session */
  #focus(session) {
    const { requests } = session.log.head;
    if (requests.some((r) => r.request === this.chosen)) return this.chosen ?? -1;
    return session.opening?.request ?? requests.at(-1)?.request ?? -1;
  }

  #draw() {
    this.dirty = false;
    const { source, head, ask, ticker, tabs, logical, table, memory, controls, client, stage, links } = this;
    if (!source || !head || !ask || !ticker || !tabs || !logical || !table || !memory || !controls || !client || !stage || !links) return;
    const session = this.session;
    const live = session?.kind === "live" && source.ready;
    const label = source.label();
    head.update(label, source.blockSize, Boolean(live));
    ask.refresh(this.#sendLabel(session), live ? "" : this.#whyOff("Your prompt is kept."));
    client.update(live ? source.memory : null, this.#whyOff("While the figure is live, a command stands here that sends a request into its memory."));
    if (!session) {
      this.#drawNothing(label.words);
      return;
    }
    const { transport, setting } = session;
    const seen = look(session, this.#focus(session));
    const view = setting ? unread(seen) : seen;
    this.drawn = view;
    const what = view.readings.length > 1 ? "Block tables" : "Block table";
    const reads = view.request ? `${what} of request ${view.names.letter(view.focus)}` : what;
    for (const name of ["hue-a", "hue-b", "hue-c", "hue-d", "hue-e", "hue-f"]) stage.classList.toggle(name, view.names.hue(Math.max(0, view.focus)) === name);
    stage.classList.toggle("moving", transport.playing);
    stage.dataset.lines = String(Math.ceil(view.state.block_size / 4));
    const first = session.names.letter(session.opening?.request ?? 0);
    const words = setting ? SETTING
      : session.opened && (live || session.kind === "recorded") ? `The prompt of ${first} has been read, and a first token is picked. Press Play, or take one step.`
      : session.over ? "Everything has ended. Every block is free again." : "";
    ticker.update(view, words, setting);
    tabs.update(view, setting ? [] : choices(view, session.log.head));
    logical.update(view, setting ? FIRST : "");
    logical.over(session.over && session.opening ? `Back to ${first}’s prompt` : "", Boolean(live));
    set(logical.element, { "aria-label": `Request ${view.names.letter(Math.max(0, view.focus))} as it reads` });
    table.update(view, reads);
    memory.update(view);
    controls.update(view.state, words || "The log begins here.");
    this.#title(view);
    if (view.readings.some((reading) => reading.rows.some((row) => row.block === view.currentBlock))) this.#reveal(view);
    links.apply();
    this.#point(links.block);
    this.#speak(view, transport.playing);
    this.dispatchEvent(new CustomEvent("paged-drawn", { bubbles: true }));
  }

  /** @param {string} words */
  #drawNothing(words) {
    const view = blank(4, SHAPES[4]);
    this.memory?.update(view);
    this.logical?.update(view);
    this.ticker?.update(view, words ? `${words.charAt(0).toUpperCase()}${words.slice(1)} …` : "");
    this.#title(view);
  }

  /** @param {View} view */
  #title(view) {
    if (this.memoryTitle) say(this.memoryTitle, `Physical memory, ${view.state.num_blocks} blocks of ${view.state.block_size} slots`);
  }

  /** Brings the block of the event at the playhead into sight. @param {View} view */
  #reveal(view) {
    const at = lines(view).findIndex((line) => line.row?.block === view.currentBlock);
    this.logical?.reveal(at);
    const box = this.table?.element;
    const node = [...(this.table?.body.rows ?? [])].find((row) => row.dataset.block === String(view.currentBlock));
    if (!node || !box) return;
    const bottom = node.offsetTop + node.offsetHeight;
    if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight + 4;
    else if (node.offsetTop < box.scrollTop) box.scrollTop = Math.max(0, node.offsetTop - 32);
  }

  /** The same in words: for a screen reader now and then, in full under the figure. @param {View} view @param {boolean} playing */
  #speak(view, playing) {
    if (!this.spoken || !this.text || !this.asText) return;
    const lines = describe(view.state, view.names);
    if (this.asText.open) this.text.replaceChildren(...lines.map((line) => el("p", {}, line)));
    const now = performance.now();
    if (playing && now - (this.announced ?? 0) < ANNOUNCE_MS) return;
    this.announced = now;
    const letter = eventRequest(view) >= 0 ? `Request ${view.names.letter(eventRequest(view))}:` : "";
    say(this.spoken, (lines.find((line) => letter && line.startsWith(letter)) ?? lines[0]).split(" It reads:")[0]);
  }

  /** @param {number} block */
  #point(block) {
    if (this.detail) say(this.detail, block >= 0 && this.drawn ? explain(block, this.drawn) : "");
  }

  /** A block was clicked: read the request that owns it. @param {number} block */
  #choose(block) {
    const owner = this.drawn?.owners.get(block);
    if (owner?.length && !owner.some((o) => o.request === this.drawn?.focus)) this.read(owner[0].request);
  }

  /** @param {Session | null} session */
  #sendLabel(session) {
    if (session?.kind !== "live") return "Send";
    const next = Math.max(-1, ...session.log.head.requests.map((r) => r.request)) + 1;
    return `Send as ${session.names.letter(next)}`;
  }

  /** @param {string} but what comes of it */
  #whyOff(but) {
    if (this.session?.kind === "recorded") return `This is a recording: no model runs behind it, so nothing new can be computed. ${but}`;
    return `Not now: ${this.source?.label().words || "the model is not ready yet"}. ${but}`;
  }

  /** Shows this request as it reads. @param {number} request */
  read(request) {
    this.chosen = request;
    this.#changed();
  }

  /**
   * Submits a prompt, shows its request and lets the engine run. Rejects with the server's words.
   * @param {string} prompt @param {number} maxTokens
   */
  async submit(prompt, maxTokens) {
    const session = this.session;
    if (!this.source || session?.kind !== "live") throw new Error(this.#whyOff("Your prompt is kept."));
    await this.ready();
    const request = await this.source.client.submit(prompt, { max_tokens: maxTokens });
    session.transport.goLive();
    if (request >= 0) this.read(request);
    if (!session.transport.drive?.running()) session.transport.drive?.resume();
    session.transport.playing = true;
    this.#changed();
  }

  /** The scene once more, as it is: a live one from its start, a recorded one from where it opens. */
  async again() {
    const session = this.session;
    if (session?.kind === "recorded") session.transport.seek(session.prefilled);
    else await this.resize(session?.log.head.block_size ?? 4);
  }

  /** The scene from its start with another block size. @param {number} size */
  async resize(size) {
    try {
      if (!this.source?.ready) throw new Error(this.#whyOff("The block size stays as it is."));
      await this.source.reset({ block_size: size, num_blocks: SHAPES[size] });
    } catch (why) {
      this.ask?.say(why instanceof Error ? why.message : String(why), true);
    }
    this.#changed();
  }
}

customElements.define("paged-block-table", PagedBlockTable);
