"""The steps of both protocols before an inference is sent: find, admit, trace."""
