"""Rules: functions that yield the findings about one subject each."""
