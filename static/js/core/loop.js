// @ts-check
/** One animation frame loop for the whole page. It sleeps when no figure that can be seen wants a frame. */

/** @typedef {{element: Element, tick: (ms: number) => boolean, back: () => void, seen: boolean, awake: boolean, last: number}} Task */

/** @type {Map<Element, Task>} */
const tasks = new Map();
let frame = 0;

const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const task = tasks.get(entry.target);
    if (!task) continue;
    const seen = entry.isIntersecting;
    if (seen && !task.seen) {
      task.seen = true;
      task.back();
      rouse(task);
    }
    task.seen = seen;
  }
}, { rootMargin: "200px 0px" });

/** @param {Task} task */
function rouse(task) {
  if (!task.awake) task.last = 0;
  task.awake = true;
  schedule();
}

function schedule() {
  if (frame || document.hidden) return;
  for (const task of tasks.values())
    if (task.awake && task.seen) {
      frame = requestAnimationFrame(run);
      return;
    }
}

/** @param {number} now */
function run(now) {
  frame = 0;
  for (const task of tasks.values()) {
    if (!task.awake || !task.seen) continue;
    const ms = task.last ? Math.min(now - task.last, 250) : 0;
    task.last = now;
    task.awake = task.tick(ms);
  }
  schedule();
}

document.addEventListener("visibilitychange", returned);
window.addEventListener("pageshow", (event) => {
  if (event.persisted) returned();
});

function returned() {
  if (document.hidden) {
    cancelAnimationFrame(frame);
    frame = 0;
    return;
  }
  for (const task of tasks.values()) {
    task.last = 0;
    if (task.seen) task.back();
  }
  schedule();
}

/**
 * Gives `element` frames while it can be seen. `tick` gets the milliseconds since the frame before (0 after sleep)
 * and returns whether it wants another; `back` is called when the element can be seen again.
 * @param {Element} element @param {(ms: number) => boolean} tick @param {() => void} back
 * @returns {{wake: () => void, stop: () => void}}
 */
export function frames(element, tick, back) {
  /** @type {Task} */
  const task = { element, tick, back, seen: false, awake: false, last: 0 };
  tasks.set(element, task);
  observer.observe(element);
  return {
    wake: () => rouse(task),
    stop: () => {
      observer.unobserve(element);
      tasks.delete(element);
    },
  };
}
