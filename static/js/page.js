// @ts-check
/** The explainer: its figures, and what ties each chapter's words to its figure. */
import { growing } from "./chapters/growing.js";
import { PagedBlockTable } from "./widgets/block-table.js";

const chapter = document.getElementById("growing");
const figure = chapter?.querySelector("paged-block-table");
if (chapter && figure instanceof PagedBlockTable) growing(chapter, figure);

/** The chapter being read is marked in the navigation. */
const links = new Map([...document.querySelectorAll(".bar-top ol a")].map((link) => [link.getAttribute("href")?.slice(1), link]));
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const link = links.get(entry.target.id);
    if (entry.isIntersecting) link?.setAttribute("aria-current", "true");
    else link?.removeAttribute("aria-current");
  }
}, { rootMargin: "-40% 0px -55% 0px" });
for (const id of links.keys()) {
  const section = id ? document.getElementById(id) : null;
  if (section) observer.observe(section);
}
