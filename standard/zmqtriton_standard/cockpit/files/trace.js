// The line through samples, as an SVG path. Knows nothing of the document.

/** The samples that a line goes through, as indices: a list for each run without a gap. Of those that
 * fall on one column of pixels it has the lowest and the highest, so that a day is drawn as fast as an
 * hour, and no peak is lost. */
function runsOf(xs, values) {
  const runs = [];
  let run = null, column, lowest, highest;
  const endColumn = () => {
    run?.push(Math.min(lowest, highest));
    if (lowest !== highest) run?.push(Math.max(lowest, highest));
  };
  for (let at = 0; at < xs.length; at++) {
    if (!Number.isFinite(values[at])) {
      endColumn();
      run = null;
    } else if (run && Math.round(xs[at]) === column) {
      if (values[at] < values[lowest]) lowest = at;
      else if (values[at] > values[highest]) highest = at;
    } else {
      endColumn();
      if (!run) runs.push(run = []);
      column = Math.round(xs[at]);
      lowest = highest = at;
    }
  }
  endColumn();
  return runs;
}

const tenths = (number) => Math.round(10 * number) / 10;

/** The lines between neighbours, and the dots of samples that have none. */
export function trace(xs, values, yOf) {
  const place = (at) => `${tenths(xs[at])} ${tenths(yOf(values[at]))}`;
  const path = (run) => `M${run.map(place).join("L")}`;
  const runs = runsOf(xs, values);
  return {
    lines: runs.filter((run) => run.length > 1).map(path).join(""),
    // A round cap makes a dot of a line without length.
    dots: runs.filter((run) => run.length === 1).map((run) => `${path(run)}h0`).join(""),
  };
}
