// @ts-check
/** Where each physical block and each of its slots is drawn, in the pixels of the page, so that numbers keep their size. */

/** @typedef {{columns: number, rows: number, slotColumns: number, slotRows: number, pitchX: number, pitchY: number,
 *   slotWidth: number, slotHeight: number, width: number, height: number}} Geometry */

export const HEAD = 15;
const GAP = 8;
const EDGE = 4;

/** Columns of blocks, wide and narrow, for the block sizes on offer. */
const COLUMNS = /** @type {Record<number, [number, number]>} */ ({ 4: [8, 8], 8: [6, 4], 16: [4, 3], 32: [4, 2] });

/**
 * @param {number} blockSize @param {number} numBlocks @param {number} width of the drawing @returns {Geometry}
 */
export function geometry(blockSize, numBlocks, width) {
  const slotColumns = blockSize <= 1 ? 1 : blockSize <= 4 ? 2 : blockSize <= 16 ? 4 : 8;
  const slotRows = Math.ceil(blockSize / slotColumns);
  const wide = width >= 430;
  const wished = COLUMNS[blockSize]?.[wide ? 0 : 1] ?? Math.floor(width / Math.max(40, slotColumns * 14 + GAP));
  const columns = Math.max(1, Math.min(wished, numBlocks));
  const pitchX = (width - 2 * EDGE + GAP) / columns;
  const slotWidth = (pitchX - GAP + 2) / slotColumns - 2;
  const slotHeight = Math.max(11, Math.min(slotRows > 2 ? 16 : 17, slotWidth * 0.72));
  const pitchY = HEAD + slotRows * (slotHeight + 2) + GAP;
  const rows = Math.ceil(numBlocks / columns);
  return { columns, rows, slotColumns, slotRows, pitchX, pitchY, slotWidth, slotHeight, width, height: rows * pitchY + 2 * EDGE - GAP };
}

/** Top left corner of a block. @param {Geometry} g @param {number} block @returns {[number, number]} */
export function corner(g, block) {
  return [EDGE + (block % g.columns) * g.pitchX, EDGE + Math.floor(block / g.columns) * g.pitchY];
}

/** Top left corner of a slot within its block. @param {Geometry} g @param {number} slot @returns {[number, number]} */
export function slotCorner(g, slot) {
  return [(slot % g.slotColumns) * (g.slotWidth + 2), HEAD + Math.floor(slot / g.slotColumns) * (g.slotHeight + 2)];
}

/** The outline around a block. @param {Geometry} g */
export function frame(g) {
  return { x: -3, y: -2, width: g.pitchX - GAP + 6, height: g.pitchY - GAP + 3 };
}
