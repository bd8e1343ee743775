// A picture for an input of bytes: its pixels become the numbers of the tensor.

import { element } from "./api.js";

/** Channels of a picture by the last size of a shape; a shape without one is grey. */
const CHANNELS = { 1: 1, 3: 3, 4: 4 };
const GREY = [0.299, 0.587, 0.114];

/** True if a picture fits: bytes of height and width, maybe with channels, maybe in a batch of one. */
export function takesPicture({ datatype, shape }) {
  const free = shape.filter((dim) => dim === -1).length;
  return datatype === "UINT8" && free >= 2 && shape.length <= 4;
}

/** A field for a file, which fills the text of a tensor's field. */
export function pictureInput(field) {
  const { name, shape } = field.input;
  const file = element("input", { type: "file", accept: "image/*", "aria-label": `A picture for ${name}` });
  const wrong = element("p", { class: "wrong", role: "status" });
  file.addEventListener("change", async () => {
    wrong.replaceChildren();
    try {
      const bitmap = await createImageBitmap(file.files[0]);
      field.text.value = JSON.stringify(pixels(bitmap, shape));
      field.text.dispatchEvent(new Event("input", { bubbles: true }));
    } catch (error) {
      wrong.append(`This picture cannot be read: ${error.message}`);
    }
  });
  field.rest.append(element("p", { class: "hint" }, "Or a picture: ", file), wrong);
}

/** The pixels in the lists of a shape, such as [-1, -1] or [1, -1, -1, 3]. */
function pixels(bitmap, shape) {
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
  const channels = shape.at(-1) === -1 ? 0 : CHANNELS[shape.at(-1)];
  if (channels === undefined) throw new Error(`a picture has no ${shape.at(-1)} channels`);
  const pixel = (at) => {
    const colours = [...data.subarray(at, at + 4)];
    const grey = Math.round(GREY.reduce((sum, part, each) => sum + part * colours[each], 0));
    return channels === 0 ? grey : channels === 1 ? [grey] : colours.slice(0, channels);
  };
  let rows = Array.from({ length: bitmap.height }, (_, y) =>
    Array.from({ length: bitmap.width }, (__, x) => pixel(4 * (y * bitmap.width + x))));
  for (let more = shape.length - 2 - (channels ? 1 : 0); more > 0; more -= 1) rows = [rows];
  return rows;
}
