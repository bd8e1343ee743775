// Where an axis has its marks: at round numbers, as many as there is room for. Knows nothing of the
// document.

/** Steps of an axis of bytes: 1, 2, 4, … */
export const POWERS_OF_2 = Array.from({ length: 50 }, (_, power) => 2 ** power);
/** Steps of an axis of things that are counted: 1, 2, 5, 10, … */
export const WHOLE = powersOf10(0, [1, 2, 5]);
/** Steps of all other axes: …, 0.1, 0.2, 0.25, 0.5, 1, … */
export const DECIMAL = powersOf10(-6, [1, 2, 2.5, 5]);
/** Labels have no seconds, so that no step is shorter than a minute. */
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];

function powersOf10(lowest, factors) {
  const powers = Array.from({ length: 20 }, (_, at) => at + lowest);
  return powers.flatMap((power) => factors.map((factor) => Number(`${factor}e${power}`)));
}

/** The shortest step of so many pixels at least; the whole length where there is none. */
const stepOf = (steps, length, pixels, space) =>
  steps.find((step) => (step / length) * pixels >= space) ?? length;

function multiples(step, from, to) {
  const lowest = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - lowest + 1 }, (_, at) => (lowest + at) * step);
}

/** Numbers between 0 and the highest, which have so many pixels; `space` is the least between two. */
export const marksOf = (highest, pixels, steps, space) =>
  multiples(stepOf(steps, highest, pixels, space), 0, highest);

/** Times of day that are round where the reader is, in seconds since 1970. */
export function timeMarksOf(first, last, pixels, space) {
  const step = stepOf(MINUTES.map((minutes) => 60 * minutes), last - first, pixels, space);
  const westwards = 60 * new Date(1000 * last).getTimezoneOffset();
  return multiples(step, first - westwards, last - westwards).map((time) => time + westwards);
}

/** The index of the time that is nearest; -1 if there are none. */
export function nearest(times, time) {
  let [low, high] = [0, times.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle;
    else high = middle;
  }
  return time - times[low] <= times[high] - time ? low : high;
}
