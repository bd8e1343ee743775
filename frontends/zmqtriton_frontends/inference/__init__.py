"""What both protocols do with an inference before it is sent: find, admit, trace."""
