"""From a batch to its responses: execute(), streams, implicit state, warm-up."""
