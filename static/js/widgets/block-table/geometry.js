// @ts-check
/** Where each physical block and each of its slots is drawn, in the pixels of the page, so that numbers keep their size. */

/** @typedef {{columns: number, rows: number, slotColumns: number, slotRows: number, pitchX: number, pitchY: number,
 *   slotWidth: number, slotHeight: number, width: number, height: number}} Geometry */

export const HEAD = 15;
const GAP = 8;
const EDGE = 4;

/** Columns of blocks for the block sizes on offer. */
const COLUMNS = /** @type {Record<number, number>} */ ({ 4: 8, 8: 4, 16: 4, 32: 2 });
const LEAST_SLOT = 9;
const MOST_SLOT = 24;

/** Height of the drawing: that of six rows of blocks of two rows of slots, for every shape, so that another block size
 * moves nothing below it. @param {number} width */
function height(width) {
  const slotWidth = ((width - 2 * EDGE + GAP) / 8 - GAP + 2) / 2 - 2;
  return 6 * (HEAD + 2 * (Math.max(11, Math.min(17, slotWidth * 0.72)) + 2) + GAP) + 2 * EDGE - GAP;
}

/**
 * @param {number} blockSize @param {number} numBlocks @param {number} width of the drawing @returns {Geometry}
 */
export function geometry(blockSize, numBlocks, width) {
  const slotColumns = blockSize <= 1 ? 1 : blockSize <= 4 ? 2 : blockSize <= 16 ? 4 : 8;
  const slotRows = Math.ceil(blockSize / slotColumns);
  const wished = COLUMNS[blockSize] ?? Math.floor(width / Math.max(40, slotColumns * 14 + GAP));
  const columns = Math.max(1, Math.min(wished, numBlocks));
  const pitchX = (width - 2 * EDGE + GAP) / columns;
  const slotWidth = (pitchX - GAP + 2) / slotColumns - 2;
  const rows = Math.ceil(numBlocks / columns);
  const room = ((height(width) - 2 * EDGE + GAP) / rows - HEAD - GAP) / slotRows - 2;
  const slotHeight = Math.max(LEAST_SLOT, Math.min(MOST_SLOT, room));
  const pitchY = HEAD + slotRows * (slotHeight + 2) + GAP;
  return { columns, rows, slotColumns, slotRows, pitchX, pitchY, slotWidth, slotHeight, width, height: rows * pitchY + 2 * EDGE - GAP };
}

/** Top left corner of a block, in whole pixels. @param {Geometry} g @param {number} block @returns {[number, number]} */
export function corner(g, block) {
  return [EDGE + Math.round((block % g.columns) * g.pitchX), EDGE + Math.round(Math.floor(block / g.columns) * g.pitchY)];
}

/** A slot within its block, in whole pixels, so that every outline is as sharp and every gap as wide as the next.
 * @param {Geometry} g @param {number} slot */
export function slotBox(g, slot) {
  const left = (/** @type {number} */ column) => Math.round(column * (g.slotWidth + 2));
  const top = (/** @type {number} */ row) => HEAD + Math.round(row * (g.slotHeight + 2));
  const column = slot % g.slotColumns;
  const row = Math.floor(slot / g.slotColumns);
  return { x: left(column), y: top(row), width: left(column + 1) - left(column) - 2, height: top(row + 1) - top(row) - 2 };
}

/** The outline around a block. @param {Geometry} g */
export function frame(g) {
  return { x: -3, y: -2, width: g.pitchX - GAP + 6, height: g.pitchY - GAP + 3 };
}
