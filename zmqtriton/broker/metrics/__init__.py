"""What is counted and measured, and the reports made of it."""
