"""Judgements: functions that derive findings from facts, one subject each. They do no I/O."""
