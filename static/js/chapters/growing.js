// @ts-check
/** Chapter three: its words follow the figure, and its phrases set the figure to a state. No number is written down. */
import { say } from "../core/dom.js";
import { count } from "../core/reduce.js";
import { ended } from "../core/reduce/state.js";
import { busy } from "../core/session.js";
import { inWords, plural, series } from "../core/words.js";

/** @typedef {import("../widgets/block-table.js").PagedBlockTable} Figure */

const SECOND_PROMPT = "Paging lets a computer";

/** What the opening request looked like when its prompt had been read; null while that is not known.
 * @param {Figure} figure */
function opening(figure) {
  const session = figure.session;
  const request = session?.opening;
  if (!session || !request) return null;
  const position = session.prefilled;
  const state = session.log.stateAt(position);
  const sequence = state.sequences.find((s) => s.request === request.request);
  if (!sequence?.table.length) return null;
  const last = state.blocks.find((b) => b.block === sequence.table[sequence.table.length - 1]);
  const room = state.block_size - (last?.tokens.length ?? 0);
  return { session, request, position, sequence, size: state.block_size, room, names: session.names };
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {number} room slots left in the last block */
function roomSentence(room) {
  if (room === 0) return "No slot is left in the block that is there, so";
  return `${capital(inWords(room))} more ${room === 1 ? "token fits" : "tokens fit"} into the block that is there. The one after does not, so`;
}

/** How the opening request's blocks lie: what comes before their numbers, and after. @param {number[]} table */
function whereabouts(table) {
  if (table.length === 1)
    return { lie: "a single block, physical block", way: "A longer text takes more, wherever there is room, and the block table knows the way." };
  const many = `${inWords(table.length)} blocks`;
  if (table.every((block, i) => i === 0 || block > table[i - 1])) {
    return { lie: `${many}. In the order of the text they are`,
      way: "This time they happen to lie in order. They need not: the block table knows the way." };
  }
  return { lie: `${many} that lie wherever there was room. In the order of the text they are`,
    way: "Nobody planned that, and nobody minds: the block table knows the way." };
}

/** The state at the playhead, or if no block is in use there, the end of the last step at which one was; none as long as
 * the opening request is there and has not stored anything.
 * @param {import("../core/session.js").Session} session
 * @returns {{state: import("../core/types.js").ArenaState, moment: string, earlier: boolean} | null} */
function measurable({ log, transport, state, opening }) {
  const { position } = transport;
  if (count(state).written) {
    const mark = log.markAt(position);
    return { state, earlier: false, moment: !mark || mark.end === position ? `after step ${state.step}` : `in step ${state.step + 1}` };
  }
  const known = (/** @type {import("../core/types.js").ArenaState} */ at) => at.requests.find((r) => r.request === opening?.request);
  const first = known(state);
  if (first && !ended(first)) return null;
  for (const mark of log.marks.toReversed()) {
    const then = mark.end < position ? log.stateAt(mark.end) : null;
    if (then && first && !known(then)) return null;
    if (then && count(then).written) return { state: then, earlier: true, moment: `after step ${then.step}, the last before every block was free` };
  }
  return null;
}

/** @param {HTMLElement} chapter @param {Figure} figure */
export function growing(chapter, figure) {
  /** @param {string} name @param {string} text */
  const fill = (name, text) => document.querySelectorAll(`[data-fill="${name}"]`).forEach((node) => say(node, text));

  const paragraphs = [...chapter.querySelectorAll("p")].filter((p) => p.querySelector("[data-fill]"));
  /** What stands below a paragraph keeps its place when the paragraph gets shorter. */
  const hold = () => {
    const heights = paragraphs.map((p) => p.offsetHeight);
    paragraphs.forEach((p, i) => (p.style.minHeight = `${heights[i]}px`));
  };
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    for (const p of paragraphs) p.style.minHeight = "";
  });

  /** @param {string} name @param {number} request @param {import("../core/names.js").Names} names */
  const name = (name, request, names) => chapter.querySelectorAll(`[data-fill="${name}"]`).forEach((node) => {
    say(node, names.letter(request));
    node.className = `req ${names.hue(request)}`;
  });

  let known = "";
  const words = () => {
    const now = opening(figure);
    if (!now) return;
    const { sequence, size, room, request, names, session } = now;
    const next = Math.max(...session.log.head.requests.filter((r) => r.source !== "earlier").map((r) => r.request), request.request);
    const second = Math.max(request.request + 1, next);
    const key = JSON.stringify([sequence.table, size, room, request.request, names.offset, second, session.kind]);
    if (key === known) return;
    known = key;
    hold();
    name("first", request.request, names);
    name("second", second, names);
    fill("tokens", inWords(request.prompt_tokens));
    fill("size", inWords(size));
    const { lie, way } = whereabouts(sequence.table);
    fill("lie", lie);
    fill("way", way);
    fill("blocks", series(sequence.table.map(String), ", then\u00a0"));
    fill("room", roomSentence(room));
    fill("where", session.kind === "live" ? "here" : "in this recording");
    fill("now", session.kind === "live" ? "on this machine, now" : "as it was recorded");
  };

  const measured = () => {
    if (!figure.session) return;
    const found = measurable(figure.session);
    if (!found) {
      fill("share", "–");
      fill("of", "no slot is written yet");
      return;
    }
    const { written, empty } = count(found.state);
    fill("share", `${found.earlier ? "earlier: " : ""}${((100 * written) / (written + empty)).toFixed(1)} %`);
    fill("of", `${written} of ${plural(written + empty, "slot")}, in ${plural(found.state.blocks.filter((b) => b.refs > 0).length, "block")}, ${found.moment}`);
  };

  /** What cannot be done is said beside the prompt: that is brought into sight. */
  const showWhy = () => figure.ask?.element.scrollIntoView({ block: "nearest" });
  const size = (/** @type {number} */ slots) => {
    if (!figure.source?.ready) showWhy();
    void figure.resize(slots);
  };

  /** A second request beside the first; where nothing runs any more, the scene starts again for it. */
  const join = async () => {
    const session = figure.session;
    if (session?.kind === "live" && figure.source?.ready && !busy(session.log.head)) {
      await figure.again();
      await figure.ready();
      figure.session?.transport.play();
    }
    await figure.submit(SECOND_PROMPT, 24);
  };

  /** @type {Record<string, () => void>} */
  const acts = {
    start: () => {
      const now = opening(figure);
      if (!now) return;
      figure.read(now.request.request);
      now.session.transport.seek(now.position);
    },
    grow: () => {
      const now = opening(figure);
      if (!now) return;
      const { session, sequence, request, position } = now;
      figure.read(request.request);
      session.transport.seekEvent((e) => e.type === "block_allocated" && e.sequence === sequence.sequence, position);
    },
    pending: () => {
      const now = opening(figure);
      if (!now) return;
      figure.read(now.request.request);
      now.session.transport.seekEvent((e) => e.type === "token_generated" && e.sequence === now.sequence.sequence, now.position);
    },
    join: () => void join().catch((/** @type {Error} */ why) => {
      figure.ask?.say(why.message, true);
      showWhy();
    }),
    play: () => figure.session?.transport.play(),
    again: () => void figure.again().then(() => figure.ready()).then(() => figure.session?.transport.play()),
    larger: () => size(16),
    smaller: () => size(4),
  };

  /** Brings what a phrase names into sight, all of it where the window is large enough, unless it is. @param {string} act */
  const show = (act) => {
    const { head, ticker, logical, table, stage, controls } = figure;
    if (!head || !ticker || !logical || !table || !stage || !controls) return;
    const narrow = matchMedia("(max-width: 43rem)").matches;
    const sizes = act === "larger" || act === "smaller";
    const lines = narrow && (act === "start" || act === "grow");
    const first = sizes ? head.element : lines ? table.element.parentElement ?? table.element : ticker.element;
    const last = !narrow ? stage : sizes ? head.element : lines ? table.element : logical.element;
    const over = document.querySelector(".bar-top")?.getBoundingClientRect().bottom ?? 0;
    const under = window.innerHeight - controls.element.offsetHeight;
    if (first.getBoundingClientRect().top >= over && last.getBoundingClientRect().bottom <= under) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    first.scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
  };

  chapter.addEventListener("click", (event) => {
    const act = event.target instanceof Element ? event.target.closest("[data-act]")?.getAttribute("data-act") : null;
    if (!act || !acts[act]) return;
    event.preventDefault();
    if (figure.session) void figure.ready().then(acts[act]);
    show(act);
  });
  figure.addEventListener("paged-change", words);
  figure.addEventListener("paged-drawn", measured);
  words();
  measured();
}
