"""Pages compared as from afar: a grid of mean colours per section, every line of text empty.

So fonts may differ, and pictures, bars, lines and boxes may not. The browser reads, reduces and writes the PNG files.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import numpy as np

ROWS, COLUMNS = 20, 24  # cells of a section
SCALE = 0.25  # of the picture of a page that is reduced
FAR = 10.0  # of 255: how far the mean colour of 2 x 2 neighbouring cells may be off
OFF = 1.0  # of 255: how far all cells of a section may be off on average
HEIGHT = 0.05  # by which share the height of a section may differ

_WORDLESS = """
body, body * { font-size: 0 !important; line-height: 16px !important; color: transparent !important }
text { display: none !important }
select, input, button { height: 20px !important; width: 60px !important }"""

_REDUCE = """
(async (url, boxes, rows, columns) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const means = [];
  for (const [left, top, width, height] of boxes ?? [[0, 0, image.width, image.height]]) {
    const pixels = pen.getImageData(left, top, width, height).data, cells = new Float64Array(rows * columns * 4);
    for (let y = 0, at = 0; y < height; y++)
      for (let x = 0; x < width; x++, at += 4) {
        const cell = 4 * (Math.floor((y * rows) / height) * columns + Math.floor((x * columns) / width));
        for (let c = 0; c < 3; c++) cells[cell + c] += pixels[at + c];
        cells[cell + 3] += 1;
      }
    for (let cell = 0; cell < cells.length; cell += 4)
      for (let c = 0; c < 3; c++) means.push(Math.round(cells[cell + c] / cells[cell + 3]));
  }
  return means;
})"""

_WRITE = """
(async (means, rows, columns) => {
  const canvas = new OffscreenCanvas(columns, rows);
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(columns, rows);
  for (let cell = 0; cell < rows * columns; cell++)
    image.data.set([...means.slice(3 * cell, 3 * cell + 3), 255], 4 * cell);
  pen.putImageData(image, 0, 0);
  const bytes = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
  return btoa(String.fromCharCode(...bytes));
})"""

_BOXES = """
[["answer", document.querySelector("header")], ...[...document.querySelectorAll("section")].map((s) => [s.id, s])]
  .map(([name, part]) => { const box = part.getBoundingClientRect();
    return [name, { x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height }]; })"""


@dataclass(frozen=True)
class Look:
    """How the sections of a page look: height in pixels and a grid (ROWS, COLUMNS, 3) of mean colours of each."""

    heights: dict[str, float]
    grids: dict[str, np.ndarray]


def look(browser, folder):
    """What the browser shows now."""
    browser.style(_WORDLESS)
    boxes = browser.run(_BOXES)
    area = browser.run("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
    browser.screenshot(
        folder / "page.png", dict(zip(("width", "height"), area, strict=True), x=0, y=0), SCALE
    )
    inside = [[round(box[side] * SCALE) for side in ("x", "y", "width", "height")] for _, box in boxes]
    grids = _reduced(browser, _url((folder / "page.png").read_bytes()), inside, ROWS)
    names = [name for name, _ in boxes]
    return Look({name: box["height"] for name, box in boxes}, dict(zip(names, grids, strict=True)))


def differences(shown, kept):
    """Sentences on what differs between two looks, by more than other fonts would make differ."""
    if list(shown.heights) != list(kept.heights):
        return [f"sections {list(shown.heights)} instead of {list(kept.heights)}"]
    found = []
    for name, height in kept.heights.items():
        if abs(shown.heights[name] / height - 1) > HEIGHT:
            found.append(f"{name}: {shown.heights[name]:.0f} px high instead of {height:.0f}")
        apart = np.abs(shown.grids[name].astype(float) - kept.grids[name]).mean(axis=2)
        blocks = (apart[1:, 1:] + apart[:-1, 1:] + apart[1:, :-1] + apart[:-1, :-1]) / 4
        if apart.mean() > OFF or blocks.max() > FAR:
            found.append(f"{name}: off by {apart.mean():.1f} on average, {blocks.max():.1f} at most")
    return found


def save(browser, found, path):
    """Write a look as PATH.png, a grid below the other, and PATH.json with names and heights."""
    means = np.concatenate([grid.reshape(-1) for grid in found.grids.values()]).tolist()
    written = browser.run(f"{_WRITE}({means}, {ROWS * len(found.grids)}, {COLUMNS})")
    path.with_suffix(".png").write_bytes(base64.b64decode(written))
    heights = {name: round(height) for name, height in found.heights.items()}
    path.with_suffix(".json").write_text(json.dumps(heights, indent=1) + "\n")


def load(browser, path):
    """A look that was written."""
    heights = json.loads(path.with_suffix(".json").read_text())
    (cells,) = _reduced(browser, _url(path.with_suffix(".png").read_bytes()), None, ROWS * len(heights))
    return Look(heights, dict(zip(heights, cells.reshape(-1, ROWS, COLUMNS, 3), strict=True)))


def _reduced(browser, url, boxes, rows):
    """A grid of so many rows per box, or of the whole picture."""
    means = browser.run(f"{_REDUCE}('{url}', {json.dumps(boxes)}, {rows}, {COLUMNS})")
    return np.array(means).reshape(-1, rows, COLUMNS, 3)


def _url(content):
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
