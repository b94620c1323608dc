"use strict";
// From a picture to the numbers that the student takes.

// The mean of all pixels that fall into each cell, after cutting the middle out in the shape that the student takes.
function shrunk(pixels, width, height, columns, rows) {
  const scale = Math.min(width / columns, height / rows);
  const left = (width - scale * columns) / 2, top = (height - scale * rows) / 2;
  const out = new Float64Array(columns * rows * 3);
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
    const x0 = Math.floor(left + column * scale), y0 = Math.floor(top + row * scale);
    const x1 = Math.max(x0 + 1, Math.floor(left + (column + 1) * scale));
    const y1 = Math.max(y0 + 1, Math.floor(top + (row + 1) * scale));
    const sums = [0, 0, 0];
    for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++)
      for (let c = 0; c < 3; c++) sums[c] += pixels[4 * (y * width + x) + c];
    const area = 255 * (x1 - x0) * (y1 - y0);
    for (let c = 0; c < 3; c++) out[3 * (row * columns + column) + c] = sums[c] / area;
  }
  return out;
}

function askPicture() {
  if (!state.picture) return;
  const shape = state.model.inputs[0].shape, [rows, columns] = shape.slice(-2);
  const channels = shape.length === 3 ? shape[0] : 1;
  const { width, height } = state.picture, whole = made("canvas");
  Object.assign(whole, { width, height });
  const pen = whole.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "#fff"; // behind what is transparent
  pen.fillRect(0, 0, width, height);
  pen.drawImage(state.picture, 0, 0);
  let cells = shrunk(pen.getImageData(0, 0, width, height).data, width, height, columns, rows);
  if ($("invert").checked) cells = cells.map((value) => 1 - value);
  const at = (channel, cell) => channels === 3 ? cells[3 * cell + channel]
    : cells[3 * cell] === cells[3 * cell + 1] && cells[3 * cell] === cells[3 * cell + 2] ? cells[3 * cell]
    : 0.299 * cells[3 * cell] + 0.587 * cells[3 * cell + 1] + 0.114 * cells[3 * cell + 2];
  const planes = Array.from({ length: channels }, (_, channel) => Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (_, column) => at(channel, row * columns + column))));
  draw(planes, columns, rows);
  ask(shape.length === 3 ? [planes] : [planes[0]]);
}

function draw(planes, columns, rows) {
  const seen = $("seen"), size = Math.max(1, Math.floor(176 / Math.max(columns, rows)));
  Object.assign(seen, { width: columns, height: rows, hidden: false });
  Object.assign(seen.style, { width: `${size * columns}px`, height: `${size * rows}px` });
  const pen = seen.getContext("2d"), image = pen.createImageData(columns, rows);
  for (let cell = 0; cell < rows * columns; cell++) {
    for (let c = 0; c < 3; c++)
      image.data[4 * cell + c] = 255 * planes[planes.length === 3 ? c : 0][Math.floor(cell / columns)][cell % columns];
    image.data[4 * cell + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
  $("hint").textContent = "This is what the student sees. Choose another.";
}

